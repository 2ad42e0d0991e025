"""Reuse of results of calls: the keys they are known by, and the store they are kept in."""
