"""Detection with instance masks: Cascade Mask R-CNN on the feature pyramid of a ViT."""
