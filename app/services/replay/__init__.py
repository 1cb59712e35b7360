"""Use cases of the replay buffer: insertion, sampling, cleanup, settings, snapshots, state."""
