"""What a function does, or a value is, as a digest."""
