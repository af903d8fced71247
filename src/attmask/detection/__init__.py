"""Fine-tuning for detection: boxes, classes and masks of the objects in an image."""
