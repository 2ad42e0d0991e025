"""Files as dependencies of tasks: who reads and writes what, private directories, and putting results into place."""
