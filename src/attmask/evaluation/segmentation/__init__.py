"""Semantic segmentation with a frozen network: labels of patches, and masks from their scores."""
