"""Workers of a model on a virtual clock: the same scheduler and loop, without computing anything."""
