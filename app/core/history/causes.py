"""Say what a trainer waits for, in the few words of a timeline."""

from collections.abc import Collection, Mapping
from enum import StrEnum

from app.core.batches.leases import WITH_A_TRAINER
from lachesis.wire.blockers import Blocker
from lachesis.wire.states import LeaseState


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
_MOST_REASON = 300  # characters
_LONG_S = 120  # above this, minutes are precise enough


def blocked_sentence(seconds: Mapping[Cause, float], reasons: Mapping[Cause, str]) -> str:
    """Say what blocked a run, for how long, and the last reason of each cause that has one. The longest comes first."""
    found = sorted((cause for cause in Cause if seconds.get(cause, 0) > 0), key=lambda cause: -seconds[cause])
    return " ".join(_sentence(cause, seconds[cause], reasons.get(cause)) for cause in found) or "Nothing blocked it."


def _sentence(cause: Cause, seconds: float, reason: str | None) -> str:
    said = f"{_SENTENCES[cause]} for {_lasting(seconds)}."
    return said if reason is None else f"{said} Last reason: {reason}."


def reason_of(cause: Cause | None, detail: str | None, starvation: str | None) -> str | None:
    """Return what a history keeps of the reason for a cause, in a bounded length; None if the cause says it all.

    Args:
        cause: What the run waits for now.
        detail: Why there is no batch, as `explain` says it.
        starvation: Why nothing trainable arrives.
    """
    if cause in (None, Cause.TRAINER_HOLDS_BATCH, Cause.PAUSED):
        return None
    reason = starvation if cause is Cause.STARVATION else detail
    if reason is None or len(reason) <= _MOST_REASON:
        return reason
    return reason[: _MOST_REASON - 1] + "…"


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
