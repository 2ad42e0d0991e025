"""Command lines as tasks: what is declared of them, their text, and the processes that run them."""
