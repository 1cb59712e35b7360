"""Batches: their columns, and the lease of one in hand."""
