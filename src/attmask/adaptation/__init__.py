"""Continuing from given weights: where they come from, what of them is trained, the guard."""
