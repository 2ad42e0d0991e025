"""Loops over rows of arrays: on all cores, cut by a partitioner."""
