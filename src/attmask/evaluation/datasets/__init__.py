"""What tasks are measured on: one kind of data set a file, each from its own official files."""
