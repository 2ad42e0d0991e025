"""Reports: one HTML page about a run or a session that needs no network."""
