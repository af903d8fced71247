"""An audit of images before training: statistics, problems, and recommended settings."""
