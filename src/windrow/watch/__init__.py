"""Watching a run: event log, progress, tables and reports. Reads only; changes nothing."""
