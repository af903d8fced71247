"""Stores of pictures, one kind per file, and the index of a scan."""
