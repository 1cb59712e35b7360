"""What is taken ahead of the work on it, and the leases it is held under."""
