"""One command of the command line a file: its arguments, one call, what is printed."""
