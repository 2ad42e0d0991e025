"""What a worker executes: selections, late loading, gathering, user's functions, outputs and their merging."""
