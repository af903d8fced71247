"""What the trainings of dense prediction have in common: segments and boxes."""
