"""Arrays of random numbers: in NumPy, and by compiled loops of the same bits."""
