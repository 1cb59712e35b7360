"""The trace contexts of groups and batches in Redis."""
