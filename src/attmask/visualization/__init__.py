"""Pictures of what a network attends to, what strategies hide and what patches have in common."""
