"""The commands, one per file: arguments, one call, output."""
