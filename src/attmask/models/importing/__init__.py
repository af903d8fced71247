"""Weights of other code bases, one layout a file."""
