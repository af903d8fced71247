"""Fine-tuning of a backbone and a classifier on labelled images."""
