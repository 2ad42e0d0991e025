"""Sources joined with further columns."""
