"""Workers that are processes of their own: the driver's side, the worker's side, and what travels between them."""
