"""How many groups an environment may start, so that what it makes is still fresh and wanted when trained on.

AReaL's admission rule gives a run ``(max_staleness + version + 1) * batch_size - (accepted + running)`` sequences,
where ``accepted`` counts from the beginning. Each batch makes one version, so ``version * batch_size`` of the accepted
ones are trained on, and what the rule allows is

    horizon * batch_size - (queued + with the trainer + running)        horizon = max_staleness + 1

We use this form: it needs no count from the beginning, so nothing is off after a rewind, a dropped group or a version
set by hand (which AReaL issue 1345 is about). The horizon is the number of batches, the next one included, in which a
group started now can be used. What the run wants is split by minimum shares first, and the rest by weight.

Source: Fu et al., *AReaL: A Large-Scale Asynchronous Reinforcement Learning System* (2025), section 5.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.model import Bounds

UNLIMITED_HORIZON = 4
"""Batches looked ahead where staleness is not limited: enough that a trainer never waits, not so many that work is
done for a policy long gone."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What credits are split by.

    Attributes:
        weight: Its part of what no minimum takes, relative to others, ``>= 0``.
        bounds: What it must and may have of one batch.
        in_hand: Sequences of it queued, buffered, with the trainer, or running.
    """

    weight: float
    bounds: Bounds
    in_hand: int


@dataclass(frozen=True, slots=True)
class Credit:
    """What an environment may start, in sequences, and the numbers behind it."""

    sequences: int
    wanted: int
    in_hand: int
    reason: str


def horizon_of(max_staleness: int | None) -> int:
    """Return the number of batches in which a group that is started now can be used."""
    return UNLIMITED_HORIZON if max_staleness is None else max_staleness + 1


def credit(batch_size: int, horizon: int, claims: Mapping[int, Claim], caller: int, others_in_hand: int = 0) -> Credit:
    """Return how many sequences one environment may start now.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        horizon: Batches looked ahead, ``>= 1``.
        claims: By environment id, for those that are alive; the caller among them.
        caller: Whose credits these are.
        others_in_hand: Sequences in hand that belong to no environment alive: they fill batches, too.

    Returns:
        At most what is wanted of the caller and not in hand; at most, too, what the run as a whole has room for, unless
        the caller's minimum is not in hand: others that sent too much must not keep a promise from being kept.
    """
    own = claims[caller]
    wanted = horizon * _wanted(batch_size, claims)[caller]
    room = horizon * batch_size - others_in_hand - sum(claim.in_hand for claim in claims.values())
    promised = horizon * own.bounds.minimum - own.in_hand
    allowed = min(wanted - own.in_hand, max(room, promised))
    if allowed > 0:
        return Credit(allowed, wanted, own.in_hand, f"{own.in_hand} of {wanted} sequences wanted are in hand")
    if own.in_hand >= wanted:
        reason = f"all {wanted} sequences wanted of it over {horizon} batches are in hand: {own.in_hand}"
    else:
        reason = f"the run has all {horizon * batch_size} sequences of the next {horizon} batches in hand"
    return Credit(0, wanted, own.in_hand, reason)


def _wanted(batch_size: int, claims: Mapping[int, Claim]) -> dict[int, int]:
    """Split one batch: minimums first, the rest by weight, nobody above a maximum; rounded up."""
    wanted = {key: float(claim.bounds.minimum) for key, claim in claims.items()}
    open_ = {key for key, claim in claims.items() if claim.weight > 0 and _limit(claim, batch_size) > wanted[key]}
    left = batch_size - sum(wanted.values())
    while open_ and left > 1e-9:
        total = sum(claims[key].weight for key in open_)
        given = {
            key: min(left * claims[key].weight / total, _limit(claims[key], batch_size) - wanted[key]) for key in open_
        }
        for key, more in given.items():
            wanted[key] += more
        left -= sum(given.values())
        open_ = {key for key in open_ if wanted[key] < _limit(claims[key], batch_size) - 1e-9}
    return {key: -int(-(sequences - 1e-9) // 1) for key, sequences in wanted.items()}


def _limit(claim: Claim, batch_size: int) -> int:
    return batch_size if claim.bounds.maximum is None else claim.bounds.maximum
