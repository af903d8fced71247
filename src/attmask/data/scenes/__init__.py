"""What a generated scene is made of."""
