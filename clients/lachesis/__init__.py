"""Lachesis: exact, fair, durable batches between rollout workers and trainers."""
