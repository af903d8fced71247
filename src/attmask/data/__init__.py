"""From images to batches of views: sources, decoding, crops, colours; and generated images."""
