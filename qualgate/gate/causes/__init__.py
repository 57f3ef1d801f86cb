"""What made a variant fail."""
