"""Frozen features: what is shown of an image, what is read of the network, and how it is kept."""
