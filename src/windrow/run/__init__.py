"""The loop that wires clock, engine, scheduler and policies together."""
