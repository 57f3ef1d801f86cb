"""What one rule says about one variant, by kind of metric."""
