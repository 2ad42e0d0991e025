"""The front door for graphs of tasks: plain functions and command lines, called as usual, that run when they can."""
