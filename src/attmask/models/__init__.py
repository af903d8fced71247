"""The networks: a timm vision transformer and the projection head."""
