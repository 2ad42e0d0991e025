"""Readers of the file formats."""
