"""Data sets of the tasks, one kind per file, each from its official files."""
