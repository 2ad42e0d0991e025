"""What not to run again: pure decisions over what is known and what is wanted."""
