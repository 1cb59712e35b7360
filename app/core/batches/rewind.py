"""Decide what a rewind does with the batches of a run, and which policy version it restores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from app.core.batches.leases import Lease, as_rewound, in_saved_state, is_exhausted
from app.core.runs.view import RunView


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """What a rewind does with the batches of a run.

    Attributes:
        trained: Leases of batches that count as trained on.
        redelivered: For each batch that is handed out again, in this order: its lease now (None if the batch is kept),
            and its lease after the rewind.
        quarantined: Leases of the batches after the step that are not handed out again.
        policy_version: The policy version after the rewind.
    """

    trained: tuple[Lease, ...]
    redelivered: tuple[tuple[Lease | None, Lease], ...]
    quarantined: tuple[Lease, ...]
    policy_version: int


def plan_rewind(step: int, view: RunView, kept: Sequence[tuple[int, Lease]]) -> RewindPlan:
    """Plan to hand out every batch after ``step`` again, the same groups in the same order, before any new one.

    Batches up to ``step`` that are in the saved state count as trained on (`app.core.batches.leases.in_saved_state`).
    The other batches up to ``step`` that wait to be handed out again go first, unchanged. Quarantined batches stay.

    Args:
        step: The step the trainer goes back to.
        view: The run.
        kept: For each kept batch after that step: the policy version in force when it was acknowledged, and its lease
            then. Its deliveries are counted again from 1.
    """
    number = view.rewinds + 1
    before = [lease for lease in view.leases if lease.step <= step]
    after = [lease for lease in view.leases if lease.step > step]
    trained = [lease for lease in before if in_saved_state(lease)]
    quarantined = [lease for lease in after if is_quarantined(lease, view)]
    redelivered: list[tuple[Lease | None, Lease]] = [
        *((lease, lease) for lease in before if lease.state == "returned" and lease not in trained),
        *((lease, as_rewound(lease, number)) for lease in after if lease not in quarantined),
        *((None, replace(as_rewound(lease, number), delivery_count=1)) for _, lease in kept),
    ]
    redelivered.sort(key=lambda pair: pair[1].step)
    version = restored_version(step, view, ((lease.step, version) for version, lease in kept))
    return RewindPlan(tuple(trained), tuple(redelivered), tuple(quarantined), version)


def is_quarantined(lease: Lease, view: RunView) -> bool:
    """Return whether a batch is quarantined, or maintenance is about to quarantine it."""
    return lease.state == "quarantined" or is_exhausted(lease, view.clock_ms, view.policy.max_deliveries)


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
