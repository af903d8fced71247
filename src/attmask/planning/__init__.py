"""What a run will need, before anything runs."""
