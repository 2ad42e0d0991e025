"""Decision: the order of steps. Pure: measurements in, an order out."""
