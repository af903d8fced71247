"""Trackers that show the metrics of a run elsewhere, one a file."""
