"""Single rows at the desk: what a step gives for them, what became of one, and a debugger where a step raises."""
