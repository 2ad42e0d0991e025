"""Decisions around the order: how much to look at, when to think again, and which of the past still counts."""
