"""Frozen features: crops of images, readouts of the network, and their cache."""
