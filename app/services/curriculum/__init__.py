"""The curricula's use cases: settings, items, observations, samples, what would be, states saved and restored."""
