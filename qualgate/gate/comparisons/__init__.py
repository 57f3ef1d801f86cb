"""The comparison of one rule for one variant, by kind of metric."""
