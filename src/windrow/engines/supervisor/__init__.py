"""The supervisor: a process of its own that makes workers, watches them and ends them."""
