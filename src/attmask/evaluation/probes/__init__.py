"""Linear classifiers on frozen features."""
