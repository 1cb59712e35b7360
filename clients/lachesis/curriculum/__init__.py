"""A run's curriculum: items to try, and their results."""
