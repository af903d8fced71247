"""Export of networks to the formats of other code bases."""
