"""The journal of a run: what is done, written down so that a killed run continues."""
