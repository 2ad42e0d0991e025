"""Steps meet a file: programs, and the lanes that chunks carry."""
