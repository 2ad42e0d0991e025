"""What is kept on disk: the directory of a run with its manifest, log and result."""
