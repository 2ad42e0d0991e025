"""Rows that come while the run goes on."""
