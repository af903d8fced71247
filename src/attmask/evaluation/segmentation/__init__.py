"""Semantic segmentation: the class of every pixel of whole images."""
