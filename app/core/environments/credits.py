"""Compute how many sequences an environment may start, so that they are still fresh and needed when trained on.

AReaL's admission rule gives a run ``(max_staleness + version + 1) * batch_size - (accepted + running)`` sequences,
where ``accepted`` counts all sequences since the start. Such counts drift: a rewind, a dropped group or a version set
by hand changes one of them and not the other (AReaL issue 1345). So we count the groups that exist now:

    (max_staleness + 1) * batches per version - batches trained on and not yet in a version        batches to look ahead
    batches to look ahead * batch_size - (queued + with the trainer + running)                     sequences

With one batch per version, acknowledged before or after its version is set, this is AReaL's number.
`app.core.environments.horizon` computes the batches to look ahead. The sequences are split by minimum shares first, and
the rest by weight.

Only groups that can still enter a batch count. An environment counts up to its maximum. Groups without an owner count
up to the room that minimums leave. The sizes of these groups may still not sum to a batch. Then
`app.core.environments.completion` decides which environment makes another group.

Source: Fu et al., *AReaL: A Large-Scale Asynchronous Reinforcement Learning System* (2025), section 5.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.model import Bounds
from lachesis.wire.printable import counted

_FLOAT_ERROR = 1e-9  # by the weights 0.1 and 0.7, the first gets 1.0000000000000002 of 8 and means 1


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one environment on credits.

    Attributes:
        weight: Its share of the sequences that no minimum takes, relative to others. 0 or less: no share.
        bounds: What it must and may have of one batch.
        outstanding: Its sequences that can still enter a batch: queued, buffered, with the trainer, or running.
        leased: Those with the trainer.
    """

    weight: float
    bounds: Bounds
    outstanding: int
    leased: int = 0


@dataclass(frozen=True, slots=True)
class Credit:
    """The sequences that an environment may start, and the numbers behind that."""

    sequences: int
    wanted: int
    outstanding: int
    reason: str


class RunCredits:
    """The sequences that environments may start now.

    Building it takes time linear in the number of claims. Each answer takes constant time.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        horizon: Batches to look ahead, ``>= 0``.
        claims: By environment id, for the environments that are alive, including those that ask.
        others_outstanding: Queued, leased and running sequences of no live environment. They fill batches, too.
        leased_batches: Batches with the trainer.
    """

    def __init__(
        self,
        batch_size: int,
        horizon: int,
        claims: Mapping[int, Claim],
        others_outstanding: int = 0,
        leased_batches: int = 0,
    ) -> None:
        self._batch_size = batch_size
        self._horizon = horizon
        self._batches_to_form = max(0, horizon - leased_batches)
        self._claims = claims
        self._wanted = wanted_of_batch(batch_size, claims)
        minimums = sum(claim.bounds.minimum for claim in claims.values())
        others = min(others_outstanding, horizon * max(0, batch_size - minimums))
        self._outstanding = others + sum(self._counted(claim, claim.outstanding) for claim in claims.values())
        lacking = [self._lacks(key, claim.outstanding) for key, claim in claims.items()]
        self._lack_wanted = sum(wanted for wanted, _ in lacking)
        self._lack_minimum = sum(minimum for _, minimum in lacking)

    def of(self, caller: int, more: int = 0) -> Credit:
        """Return how many sequences one environment may start now.

        Args:
            caller: The environment; it has a claim.
            more: Its queued, leased and running sequences beyond those of its claim; below 0 for fewer.

        Returns:
            At most the sequences wanted of the caller minus those that are queued, leased or running. The room of the
            run as a whole is a second limit. It does not apply while the caller lacks its minimum: others that sent
            too much must not take a promised share away.
        """
        outstanding, wanted = self._claims[caller].outstanding + more, self._wanted_of(caller)
        allowed = min(wanted, max(self._room(caller, more) + outstanding, self._least(caller))) - outstanding
        if allowed > 0:
            reason = f"{outstanding} of {wanted} wanted sequences are queued, leased or running"
            return Credit(allowed, wanted, outstanding, reason)
        batches = counted(self._horizon, "batch", "batches")
        if outstanding >= wanted:
            wants = f"the run wants {wanted} of its sequences for {batches}"
            reason = f"{wants}; {outstanding} are queued, leased or running"
        else:
            whole = self._horizon * self._batch_size
            reason = f"all {whole} sequences of the next {batches} are queued, leased or running"
        when = "; there is room again when a trainer acknowledges batches" if wanted > 0 else ""
        return Credit(0, wanted, outstanding, reason + when)

    def is_exhausted(self, caller: int | None = None, more: int = 0) -> bool:
        """Return whether no environment may start any sequences, if the caller has ``more`` (`of`)."""
        lack_wanted, lack_minimum = self._lack_wanted, self._lack_minimum
        if caller is not None and more:
            before = self._lacks(caller, self._claims[caller].outstanding)
            now = self._lacks(caller, self._claims[caller].outstanding + more)
            lack_wanted, lack_minimum = lack_wanted + now[0] - before[0], lack_minimum + now[1] - before[1]
        return not lack_minimum and (not lack_wanted or self._room(caller, more) <= 0)

    def _room(self, caller: int | None, more: int) -> int:
        """Return the sequences that the run as a whole can still take."""
        room = self._horizon * self._batch_size - self._outstanding
        if caller is None or not more:
            return room
        own = self._claims[caller]
        return room + self._counted(own, own.outstanding) - self._counted(own, own.outstanding + more)

    def _counted(self, claim: Claim, outstanding: int) -> int:
        return min(outstanding, self._horizon * _limit(claim, self._batch_size))

    def _wanted_of(self, key: int) -> int:
        return max(self._horizon * self._wanted[key], self._least(key))

    def _least(self, key: int) -> int:
        """Return the sequences that an environment may have in any case.

        These are its minimum of all batches. A batch with the trainer may have taken more of it than this minimum. Then
        it still makes its minimum of the next batches, which the trainer may need before it acknowledges that batch.
        """
        claim = self._claims[key]
        minimum = claim.bounds.minimum
        return max(self._horizon * minimum, claim.leased + self._batches_to_form * minimum if minimum else 0)

    def _lacks(self, key: int, outstanding: int) -> tuple[bool, bool]:
        """Return whether an environment lacks sequences that are wanted of it, and whether it lacks its minimum."""
        return outstanding < self._wanted_of(key), outstanding < self._least(key)


def wanted_of_batch(batch_size: int, claims: Mapping[int, Claim]) -> dict[int, int]:
    """Split one batch: minimums first, the rest by weight, each within its maximum, rounded up."""
    wanted = {key: float(claim.bounds.minimum) for key, claim in claims.items()}
    open_ = {key for key, claim in claims.items() if claim.weight > 0 and _limit(claim, batch_size) > wanted[key]}
    left = batch_size - sum(wanted.values())
    while open_ and left > _FLOAT_ERROR:
        heaviest = max(claims[key].weight for key in open_)
        parts = {key: claims[key].weight / heaviest for key in open_}  # so that no sum or product is infinite
        total = sum(parts.values())
        given = {key: min(left * parts[key] / total, _limit(claims[key], batch_size) - wanted[key]) for key in open_}
        for key, more in given.items():
            wanted[key] += more
        left -= sum(given.values())
        open_ = {key for key in open_ if wanted[key] < _limit(claims[key], batch_size) - _FLOAT_ERROR}
    return {key: -int(-(sequences - _FLOAT_ERROR) // 1) for key, sequences in wanted.items()}


def _limit(claim: Claim, batch_size: int) -> int:
    return batch_size if claim.bounds.maximum is None else claim.bounds.maximum
