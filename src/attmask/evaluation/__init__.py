"""What a frozen backbone is worth: features, nearest neighbours, attention on objects."""
