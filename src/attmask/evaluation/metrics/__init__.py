"""Measures on features, rankings and attention."""
