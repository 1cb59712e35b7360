"""Batches: their columns and leases."""
