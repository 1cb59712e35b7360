"""Use cases of curricula: settings, items, observations, samples, comparisons, saved states."""
