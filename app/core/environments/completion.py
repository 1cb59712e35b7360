"""Choose the environment that makes more groups if the queued and running groups complete no batch.

Credits can be used up although no batch is possible, because the sizes do not sum to a batch: two groups of 7 for a
batch of 8. Then one environment gets credits for more groups.

The rule: put the environments in an order. Let the first ones each make as many groups as a batch can take. Find the
first environment with which a batch becomes possible. It makes the fewest groups that suffice, given all that the
environments before it could make.

The answer does not depend on who asks, so two environments never both make the same missing groups. Once these groups
exist, the environments before it suffice. So each environment is asked at most once. The rule reads only counts and
sizes (`app.core.numeric.subset_sum`), never the queue.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from app.core.environments.shares import bounded_environment, limit_of, supplies_of, usable_groups, without_minimums
from app.core.model import Bounds, Lane
from app.core.numeric.bisection import last
from app.core.numeric.subset_sum import attainable


class Maker(NamedTuple):
    """An environment that can make groups: its id, its declared size, and the sizes of its waiting groups."""

    environment: int
    declared: int
    seen: Collection[int] = ()


class Needed(NamedTuple):
    """The groups that one environment is asked to make; of several possible sizes, the smallest."""

    environment: int
    groups: int
    size: int


class Completion(NamedTuple):
    """The groups that would complete a batch.

    Attributes:
        possible: Whether the environments can complete a batch at all with groups of their sizes.
        needed: The groups to make, and by whom. None if a batch is possible already, or never.
    """

    possible: bool
    needed: Needed | None = None


def completion(
    batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds], makers: Sequence[Maker]
) -> Completion:
    """Decide which environment makes how many groups so that a batch forms.

    Try declared sizes within all bounds first. Then try without minimums, which are relaxed if sizes make them
    impossible. Then try the same with the sizes of waiting groups.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        lanes: The queued and running groups; only counts are read.
        bounds: What each environment must and may have.
        makers: The environments that can make groups, without duplicates.
    """
    for sizes in ([(one.declared,) for one in makers], [(one.declared, *one.seen) for one in makers]):
        for within in (bounds, without_minimums(bounds)):
            chain = _Chain(batch_size, lanes, within, makers, sizes)
            if chain.possible(0):
                return Completion(True)
            if chain.possible(len(makers)):
                return Completion(True, chain.needed())
    return Completion(possible=False)


class _Chain:
    """Environments in order. The first ones make as many groups as a batch can take."""

    def __init__(
        self,
        batch_size: int,
        lanes: Sequence[Lane],
        bounds: Mapping[int, Bounds],
        makers: Sequence[Maker],
        sizes: Sequence[Sequence[int]],
    ) -> None:
        self._batch_size = batch_size
        self._supply = usable_groups(batch_size, lanes, bounds)
        self._bounds = bounds
        self._makers = [
            (one.environment, [size for size in own if 0 < size <= limit_of(one.environment, batch_size, bounds)])
            for one, own in zip(makers, sizes, strict=True)
        ]

    def possible(self, makers: int, groups: int = 0) -> bool:
        """Return whether a batch is possible with the first environments and this many groups of the next one."""
        made: dict[int | None, dict[int, int]] = {key: dict(own) for key, own in self._supply.items()}
        for environment, sizes in self._makers[:makers]:
            for size in sizes:
                self._add(made, environment, size, self._batch_size // size)
        if groups:
            environment, sizes = self._makers[makers]
            self._add(made, environment, sizes[0], groups)
        return attainable(self._batch_size, supplies_of(self._batch_size, made, self._bounds))

    def needed(self) -> Needed:
        """Return the groups that the last needed environment makes. All together must make a batch possible."""
        before = last(0, len(self._makers) - 1, lambda makers: not self.possible(makers))
        environment, sizes = self._makers[before]
        most = self._batch_size // sizes[0]
        if not self.possible(before, most):
            return Needed(environment, 1, min(sizes))
        return Needed(environment, 1 + last(0, most - 1, lambda groups: not self.possible(before, groups)), sizes[0])

    def _add(self, made: dict[int | None, dict[int, int]], environment: int, size: int, groups: int) -> None:
        own = made.setdefault(bounded_environment(environment, self._batch_size, self._bounds), {})
        own[size] = own.get(size, 0) + groups
