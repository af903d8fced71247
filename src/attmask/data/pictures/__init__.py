"""From the bytes of one picture to its pixels."""
