"""Engines do what commands say and report events; they never retry and never decide."""
