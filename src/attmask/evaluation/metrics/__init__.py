"""Metrics of features, rankings and attention maps."""
