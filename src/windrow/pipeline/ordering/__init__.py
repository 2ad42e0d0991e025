"""The order of a run: what it begins with, how it is decided while it goes on, files of it and words about it."""
