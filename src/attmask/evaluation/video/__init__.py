"""Video object segmentation: label propagation, its objects followed, and their report."""
