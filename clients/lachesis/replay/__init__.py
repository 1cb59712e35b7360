"""A run's replay buffer: workers, samples and upkeep."""
