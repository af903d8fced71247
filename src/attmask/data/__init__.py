"""Images to views: sources, decoding, crops and colours, batches; and embedded images."""
