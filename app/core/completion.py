"""Who makes another group where what is in hand holds no batch, although there is as much of it as credits allow.

Sizes may not sum to a batch: two groups of 7 for a batch of 8. Then one environment is asked for more.

The law. Put the environments in an order. Find the first one with which a batch becomes possible, if it and those
before it make as many groups as a batch can take. That environment makes the fewest groups that are enough with all
that those before it could make.

The answer is the same whoever asks, so two environments never make what one of them is enough for. Once those groups
are there, those before it are enough: each environment is asked once, and then a batch is possible. All questions are
about counts and sizes (`app.core.sums`), never about the queue.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from app.core.blockers import account_of, limit_of, parts_of, supply_of, without_minimums
from app.core.model import Bounds, Lane
from app.core.pools import last
from app.core.sums import attainable


class Maker(NamedTuple):
    """An environment that can make groups: its id, the size it declared, and the sizes of those of it that wait."""

    environment: int
    declared: int
    seen: Collection[int] = ()


class Needed(NamedTuple):
    """What one environment is asked to make, in groups of a size; if several sizes are possible, the smallest."""

    environment: int
    groups: int
    size: int


class Completion(NamedTuple):
    """What lets a batch form.

    Attributes:
        possible: Whether the environments can complete a batch at all with groups of their sizes.
        needed: Who makes what; None if a batch is possible already, or never.
    """

    possible: bool
    needed: Needed | None = None


def completion(
    batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds], makers: Sequence[Maker]
) -> Completion:
    """Say who makes how many groups so that a batch forms.

    Groups of the sizes that environments declared are tried first, within all bounds; then without the minimums, which
    are relaxed if sizes make them impossible; then the same with the sizes that their waiting groups have.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        lanes: What is in hand; only counts are read.
        bounds: What each environment must and may have.
        makers: The environments that can make groups, each once.
    """
    for sizes in ([(one.declared,) for one in makers], [(one.declared, *one.seen) for one in makers]):
        for kept in (bounds, without_minimums(bounds)):
            chain = _Chain(batch_size, lanes, kept, makers, sizes)
            if chain.possible(0):
                return Completion(possible=True)
            if chain.possible(len(makers)):
                return Completion(possible=True, needed=chain.needed())
    return Completion(possible=False)


class _Chain:
    """Environments in an order, of which the first ones make as many groups as a batch can take."""

    def __init__(
        self,
        batch_size: int,
        lanes: Sequence[Lane],
        bounds: Mapping[int, Bounds],
        makers: Sequence[Maker],
        sizes: Sequence[Sequence[int]],
    ) -> None:
        self._batch_size = batch_size
        self._supply = supply_of(batch_size, lanes, bounds)
        self._bounds = bounds
        self._makers = [
            (one.environment, [size for size in own if 0 < size <= limit_of(one.environment, batch_size, bounds)])
            for one, own in zip(makers, sizes, strict=True)
        ]

    def possible(self, makers: int, groups: int = 0) -> bool:
        """Whether a batch is possible with the first environments, and so many declared groups of the one after."""
        made: dict[int | None, dict[int, int]] = {key: dict(own) for key, own in self._supply.items()}
        for environment, sizes in self._makers[:makers]:
            for size in sizes:
                self._add(made, environment, size, self._batch_size // size)
        if groups:
            environment, sizes = self._makers[makers]
            self._add(made, environment, sizes[0], groups)
        return attainable(self._batch_size, parts_of(self._batch_size, made, self._bounds))

    def needed(self) -> Needed:
        """Return what the last environment that is needed makes. Only ask where all together make a batch possible."""
        before = last(0, len(self._makers) - 1, lambda makers: not self.possible(makers))
        environment, sizes = self._makers[before]
        most = self._batch_size // sizes[0]
        if not self.possible(before, most):
            return Needed(environment, 1, min(sizes))
        return Needed(environment, 1 + last(0, most - 1, lambda groups: not self.possible(before, groups)), sizes[0])

    def _add(self, made: dict[int | None, dict[int, int]], environment: int, size: int, groups: int) -> None:
        own = made.setdefault(account_of(environment, self._batch_size, self._bounds), {})
        own[size] = own.get(size, 0) + groups
