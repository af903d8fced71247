"""An audit of images before hours of training: what there is, what is wrong, what to run."""
