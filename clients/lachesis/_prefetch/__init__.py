"""Take batches, samples and items ahead of the work on them, and keep their leases."""
