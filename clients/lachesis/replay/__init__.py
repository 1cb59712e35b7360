"""A run's replay buffer: workers, samples, settings and snapshots."""
