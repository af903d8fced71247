"""Where pictures are kept, one kind of place a file; and what is found there."""
