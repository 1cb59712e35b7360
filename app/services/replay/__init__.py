"""Use cases of the replay buffer: insertion, sampling, upkeep, settings, snapshots, state."""
