"""How a frozen network is measured, one protocol a file."""
