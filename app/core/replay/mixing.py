"""Mix groups from the queue and from the replay buffer into exact batches within all bounds.

The rule, for a batch of N sequences of which a fraction f must be fresh: F is the smallest number of sequences, at
least ``ceil(f * N)``, for which there are

1. fresh groups: `app.core.batches.selection` chooses them from the queue as a batch of F. The batch has each
   environment's minimum of a batch of F, and what the candidates lack of its minimum of the whole batch;
2. replayed groups: the same rule chooses them from the candidates, in the order in which they were drawn. They are a
   batch of N - F within what is left of the bounds of the whole batch.

If there is no such F below N, the batch has fresh groups only. So a batch forms whenever one would without replay.
Addition alone rules out most numbers at low cost. Of the rest, at most `TRIES` are tried.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from app.core.batches.selection import select
from app.core.environments.shares import ShareLimits, bounds_for, settle_debts
from app.core.model import BatchPlan, Bounds, Lane, LaneId, QueuedGroup, sequences_by_environment
from app.core.numeric.subset_sum import reachable

TRIES = 64

_FLOAT_ERROR = 1e-9  # 100 * 0.07 is 7.000000000000001 and means 7


@dataclass(frozen=True, slots=True)
class Mixed:
    """A batch of fresh and replayed groups.

    Attributes:
        fresh: The groups from the queue.
        replayed: The positions of the chosen candidates, ascending.
        got: Sequences that each environment has in the batch.
        debts: Sequences owed to environments after the batch is taken.
    """

    fresh: BatchPlan
    replayed: tuple[int, ...]
    got: Mapping[int | None, int]
    debts: Mapping[int, int]


def fresh_needed(batch_size: int, fresh_fraction: float) -> int:
    """Return how many sequences of a batch must come from the queue at least: ``ceil(batch_size * fresh_fraction)``."""
    return max(1, ceil(batch_size * fresh_fraction - _FLOAT_ERROR))


def needed_from_queue(batch_size: int, fresh_fraction: float, *, unfilled: bool) -> int:
    """Return how many sequences the next batch needs from the queue: its fresh part.

    It needs the whole batch if the replay buffer could not fill the last one (``unfilled``).
    """
    return batch_size if unfilled else fresh_needed(batch_size, fresh_fraction)


def has_fresh_part(batch_size: int, fresh_fraction: float, lanes: Sequence[Lane]) -> bool:
    """Return whether the fresh part of a batch is queued, and is less than the batch.

    If there is still no batch, the replay buffer cannot fill it.
    """
    needed = fresh_needed(batch_size, fresh_fraction)
    return needed < batch_size and sequences_by_environment(lanes).total() >= needed


def mix(
    batch_size: int,
    fresh_fraction: float,
    lanes: Sequence[Lane],
    candidates: Sequence[LaneId],
    shares: Mapping[int, ShareLimits],
    debts: Mapping[int, int],
) -> Mixed | None:
    """Choose the next batch by the rule above; None if it has fresh groups only.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        fresh_fraction: The least fraction of it from the queue, above 0 to 1.
        lanes: The queue, as for `app.core.batches.selection.select`.
        candidates: Environment and size of groups from the replay buffer, as they were drawn.
        shares: By environment id, for the live environments that have a share limit.
        debts: Sequences owed to environments before the batch.
    """
    bounds, replay = bounds_for(batch_size, shares), _lanes(candidates)
    needed = fresh_needed(batch_size, fresh_fraction)
    from_queue = reachable(_by_size(lanes), batch_size)
    from_replay = reachable(_by_size(replay), batch_size - needed)
    queued, supply = sequences_by_environment(lanes), sequences_by_environment(replay)
    least = max(needed, batch_size - _most(supply, bounds))
    tries = 0
    for sequences in range(least, batch_size):
        if not (from_queue >> sequences & 1 and from_replay >> (batch_size - sequences) & 1):
            continue
        own = _bounds_of_fresh(bounds, bounds_for(sequences, shares), supply)
        if not _plausible(sequences, queued, own):
            continue
        tries += 1
        if tries > TRIES:
            break
        fresh = select(sequences, lanes, own)
        replayed = fresh and select(batch_size - sequences, replay, _left(bounds, fresh.sequences_by_environment))
        if fresh and replayed:
            positions = tuple(group.arrival for group in replayed.groups)
            got = fresh.sequences_by_environment + replayed.sequences_by_environment
            return Mixed(fresh, positions, got, settle_debts(debts, bounds, got))
    return None


def _plausible(sequences: int, queued: Mapping[int | None, int], bounds: Mapping[int, Bounds]) -> bool:
    """Return whether this many sequences of the queue may be within bounds, as far as addition alone tells."""
    there = all(bound.minimum <= queued.get(environment, 0) for environment, bound in bounds.items())
    return there and sum(bound.minimum for bound in bounds.values()) <= sequences <= _most(queued, bounds)


def _most(supply: Mapping[int | None, int], bounds: Mapping[int, Bounds]) -> int:
    """Return the most sequences of a supply that a batch may have, for any group sizes."""
    most = {environment: bound.maximum for environment, bound in bounds.items() if bound.maximum is not None}
    return sum(there if one is None else min(there, most.get(one, there)) for one, there in supply.items())


def _bounds_of_fresh(
    whole: Mapping[int, Bounds], own: Mapping[int, Bounds], supply: Mapping[int | None, int]
) -> dict[int, Bounds]:
    return {
        environment: Bounds(max(own[environment].minimum, bound.minimum - supply.get(environment, 0)), bound.maximum)
        for environment, bound in whole.items()
    }


def _left(bounds: Mapping[int, Bounds], got: Mapping[int | None, int]) -> dict[int, Bounds]:
    return {
        environment: Bounds(
            max(0, bound.minimum - got.get(environment, 0)),
            None if bound.maximum is None else bound.maximum - got.get(environment, 0),
        )
        for environment, bound in bounds.items()
    }


def _lanes(candidates: Sequence[LaneId]) -> list[Lane]:
    heads: dict[LaneId, list[QueuedGroup]] = {}
    for position, lane in enumerate(candidates):
        heads.setdefault(lane, []).append(QueuedGroup(position, ""))
    return [Lane(environment, size, len(own), tuple(own)) for (environment, size), own in heads.items()]


def _by_size(lanes: Sequence[Lane]) -> Counter[int]:
    groups: Counter[int] = Counter()
    for lane in lanes:
        groups[lane.size] += lane.queued
    return groups
