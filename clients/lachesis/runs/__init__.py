"""A run, as its trainer sees it."""
