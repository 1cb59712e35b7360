"""Say what a trainer waits for, in the few words of a timeline."""

from collections.abc import Collection, Mapping
from enum import StrEnum

from app.core.batches.leases import WITH_A_TRAINER, LeaseState
from app.core.model import Blocker


class Cause(StrEnum):
    """What keeps the next batch from being trained on."""

    WAITING_FOR_DATA = "waiting_for_data"
    MINIMUM_SHORT = "minimum_short"
    NO_EXACT_FIT = "no_exact_fit"
    TRAINER_HOLDS_BATCH = "trainer_holds_batch"
    STARVATION = "starvation"
    PAUSED = "paused"


_OF_BLOCKERS = {
    Blocker.SERVING_PAUSED: Cause.PAUSED,
    Blocker.TOO_FEW_SEQUENCES: Cause.WAITING_FOR_DATA,
    Blocker.MINIMUM_SHORT: Cause.MINIMUM_SHORT,
    Blocker.MINIMUMS_CONFLICT: Cause.MINIMUM_SHORT,
    Blocker.NO_EXACT_FIT: Cause.NO_EXACT_FIT,
    Blocker.CANNOT_BE_DIVIDED: Cause.NO_EXACT_FIT,
}


_SENTENCES = {
    Cause.WAITING_FOR_DATA: "Too few sequences were queued",
    Cause.MINIMUM_SHORT: "An environment had too little for its minimum share",
    Cause.NO_EXACT_FIT: "Sizes of groups did not sum to a batch, or could not be divided",
    Cause.TRAINER_HOLDS_BATCH: "A trainer held a batch",
    Cause.STARVATION: "Nothing trainable arrived",
    Cause.PAUSED: "An operator had paused serving",
}
_LONG_S = 120  # above this, minutes are precise enough


def blocked_sentence(seconds: Mapping[Cause, float]) -> str:
    """Say what blocked a run, and for how long, the longest cause first."""
    found = sorted((cause for cause in Cause if seconds.get(cause, 0) > 0), key=lambda cause: -seconds[cause])
    return " ".join(f"{_SENTENCES[cause]} for {_lasting(seconds[cause])}." for cause in found) or "Nothing blocked it."


def _lasting(seconds: float) -> str:
    if seconds >= _LONG_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"


def cause_of(leases: Collection[LeaseState], blocker: Blocker | None, *, starving: bool) -> Cause | None:
    """Return what the run waits for now. The first that applies counts: the trainer, a pause, starvation, the queue.

    Args:
        leases: The states of the batches that were handed out and not acknowledged.
        blocker: Why there is no batch; None if there is one.
        starving: Whether nothing trainable arrives.

    Returns:
        None if a batch is ready and no trainer takes it, or the run takes no trainers.
    """
    if not WITH_A_TRAINER.isdisjoint(leases):
        return Cause.TRAINER_HOLDS_BATCH
    cause = None if blocker is None else _OF_BLOCKERS.get(blocker)
    return Cause.STARVATION if starving and cause not in (None, Cause.PAUSED) else cause
