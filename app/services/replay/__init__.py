"""The replay buffer's use cases: insertion, sampling, upkeep, what its owners do, what is seen of it."""
