"""One file per command: its arguments, one call, and what it prints."""
