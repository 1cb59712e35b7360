"""Groups: what environments submit, and what batches show of them."""
