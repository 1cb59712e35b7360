"""Decide which delivered batches are kept for a rewind, and which policy version a rewind restores."""

from collections.abc import Iterable, Sequence

from app.core.runs.view import RunView


def beyond_limits(sizes_bytes: Sequence[int], keep_batches: int, keep_bytes: int) -> int:
    """Return how many of the oldest batches must go so that the rest is within both limits.

    Args:
        sizes_bytes: Payload of each batch that is kept, oldest first.
        keep_batches: Most batches to keep.
        keep_bytes: Most bytes to keep. A batch larger than that is not kept at all, nor any before it.
    """
    kept, kept_bytes = 0, 0
    for size in reversed(sizes_bytes):
        if kept == keep_batches or kept_bytes + size > keep_bytes:
            break
        kept, kept_bytes = kept + 1, kept_bytes + size
    return len(sizes_bytes) - kept


def restored_version(step: int, view: RunView, trained: Iterable[tuple[int, int]]) -> int:
    """Return the policy version of the state that a trainer saved after ``step``.

    It is the version stored with the checkpoint of that step. A step without a checkpoint has the version in force when
    the batch after it was acknowledged. If no batch after it was acknowledged, the version stays.

    Args:
        step: The step the trainer goes back to.
        view: The run.
        trained: For each kept batch after that step: its step, and the version in force when it was acknowledged.
    """
    if view.kept.checkpoint == step and view.kept.checkpoint_version is not None:
        return view.kept.checkpoint_version
    return min(trained, default=(step, view.policy_version))[1]
