"""Say what a trainer waits for, in the few words of a timeline."""

from collections.abc import Mapping

from lachesis.wire.blockers import Blocker
from lachesis.wire.history import CAUSES, BlockedSeconds

HELD = "trainer_holds_batch"
"""The cause while a trainer has a batch."""

_OF_BLOCKERS = {
    Blocker.SERVING_PAUSED: "paused",
    Blocker.TOO_FEW_SEQUENCES: "waiting_for_data",
    Blocker.MINIMUM_SHORT: "minimum_short",
    Blocker.MINIMUMS_CONFLICT: "minimum_short",
    Blocker.NO_EXACT_FIT: "no_exact_fit",
    Blocker.OLD_GROUPS: "waiting_for_data",
    Blocker.CANNOT_BE_DIVIDED: "no_exact_fit",
}
_SENTENCES = {cause: str(field.description).removesuffix(".") for cause, field in BlockedSeconds.model_fields.items()}
_MOST_REASON = 300  # characters
_LONG_S = 120  # above this, minutes are precise enough


def blocked_sentence(seconds: Mapping[str, float], reasons: Mapping[str, str]) -> str:
    """Say what blocked a run, for how long, and the last reason of each cause that has one. The longest comes first."""
    found = sorted((cause for cause in CAUSES if seconds.get(cause, 0) > 0), key=lambda cause: -seconds[cause])
    return " ".join(_sentence(cause, seconds[cause], reasons.get(cause)) for cause in found) or "Nothing blocked it."


def _sentence(cause: str, seconds: float, reason: str | None) -> str:
    said = f"{_SENTENCES[cause]} for {_lasting(seconds)}."
    return said if reason is None else f"{said} Last reason: {reason}."


def reason_of(cause: str | None, detail: str | None, starvation: str | None) -> str | None:
    """Return what a history keeps of the reason for a cause, in a bounded length; None if the cause says it all.

    Args:
        cause: Why no trainer has a batch.
        detail: Why there is no batch, as `explain` says it.
        starvation: Why nothing trainable arrives.
    """
    if cause in (None, "paused"):
        return None
    reason = starvation if cause == "starvation" else detail
    if reason is None or len(reason) <= _MOST_REASON:
        return reason
    return reason[: _MOST_REASON - 1] + "…"


def _lasting(seconds: float) -> str:
    if seconds >= _LONG_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"


def cause_of(blocker: Blocker | None, *, starving: bool) -> str | None:
    """Return why no trainer has a batch. The first that applies counts: a pause, starvation, the queue.

    Args:
        blocker: Why there is no batch; None if there is one.
        starving: Whether nothing trainable arrives.

    Returns:
        None if a batch is ready and no trainer takes it, or the run takes no trainers.
    """
    cause = None if blocker is None else _OF_BLOCKERS.get(blocker)
    return "starvation" if starving and cause not in (None, "paused") else cause
