"""Export of networks for other libraries, each verified with that library."""
