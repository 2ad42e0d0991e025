"""Where and when things run: pure decisions over what was measured."""
