"""Features of any number of images for other programs: streamed, or written to one file."""
