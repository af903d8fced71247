"""Detection of objects in whole images by a trained detector."""
