"""``rng`` in steps with ``each=True``: one number of one row, in plain Python and compiled."""
