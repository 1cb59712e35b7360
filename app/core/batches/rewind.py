"""Decide which policy version a rewind restores."""

from collections.abc import Iterable

from app.core.runs.view import RunView


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
