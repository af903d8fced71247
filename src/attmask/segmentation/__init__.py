"""Semantic segmentation: a class for each pixel, learned from masks."""
