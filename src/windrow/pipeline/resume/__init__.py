"""Continuing a run: what is done already, what is the same as before, and writing down what is done."""
