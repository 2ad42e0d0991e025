"""The heart: events in, commands out; pure, and importing nothing of Windrow but its errors."""
