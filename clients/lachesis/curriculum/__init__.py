"""A run's curriculum: items to try, and what became of them."""
