"""How much to run at once: pure decisions from measured costs."""
