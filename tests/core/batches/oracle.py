"""What the rules of selection mean, said in the slowest and plainest way, to check the real ones against."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from app.core.model import BatchPlan, Bounds, Lane, PlannedGroup, QueuedGroup


class Group(NamedTuple):
    """A queued group; a queue is a list of them, oldest first."""

    environment: int | None
    size: int


Arrivals = tuple[int, ...]  # positions in the queue, ascending


def lanes_of(queue: Sequence[Group | None], batch_size: int) -> list[Lane]:
    """Return the queue as selection gets to see it: no more heads than it was promised. None is a group taken."""
    members: defaultdict[Group, list[QueuedGroup]] = defaultdict(list)
    for arrival, group in enumerate(queue):
        if group is not None:
            members[group].append(QueuedGroup(arrival, f"g{arrival}"))
    return [
        Lane(group.environment, group.size, len(own), tuple(own[: batch_size // group.size]))
        for group, own in members.items()
    ]


def arrivals(groups: Sequence[PlannedGroup]) -> Arrivals:
    return tuple(group.arrival for group in groups)


def got(queue: Sequence[Group], batch: Arrivals) -> Counter[int | None]:
    """Return the sequences each environment has in a batch."""
    sequences: Counter[int | None] = Counter()
    for arrival in batch:
        sequences[queue[arrival].environment] += queue[arrival].size
    return sequences


def exact_batches(queue: Sequence[Group], batch_size: int, start: int = 0) -> Iterator[Arrivals]:
    """Yield every set of groups that sums to the batch size, lexicographically oldest first."""
    if batch_size == 0:
        yield ()
    elif start < len(queue):
        if queue[start].size <= batch_size:
            for rest in exact_batches(queue, batch_size - queue[start].size, start + 1):
                yield (start, *rest)
        yield from exact_batches(queue, batch_size, start + 1)


def within(sequences: Mapping[int | None, int], bounds: Mapping[int, Bounds], *, minimums: bool = True) -> bool:
    return all(
        (not minimums or bound.minimum <= sequences.get(environment, 0))
        and (bound.maximum is None or sequences.get(environment, 0) <= bound.maximum)
        for environment, bound in bounds.items()
    )


def oldest_batch(queue: Sequence[Group], batch_size: int, bounds: Mapping[int, Bounds]) -> Arrivals | None:
    """Return the batch that the rule chooses, or None if there is no valid one."""
    return next((b for b in exact_batches(queue, batch_size) if within(got(queue, b), bounds)), None)


def relaxed_cost(
    sequences: Mapping[int | None, int], bounds: Mapping[int, Bounds], debts: Mapping[int, int]
) -> tuple[int, int]:
    """Return what remains owed after a batch, each sequence once and once for each that was owed, and its shortfall."""
    bound = {environment: b.minimum for environment, b in bounds.items() if b.minimum > 0}
    owed = {e: max(0, least + debts.get(e, 0) - sequences.get(e, 0)) for e, least in bound.items()}
    return (
        sum((1 + max(0, debts.get(e, 0))) * left for e, left in owed.items()),
        sum(max(0, least - sequences.get(e, 0)) for e, least in bound.items()),
    )


def relaxed_batch(
    queue: Sequence[Group], batch_size: int, bounds: Mapping[int, Bounds], debts: Mapping[int, int]
) -> Arrivals | None:
    """Return the batch that relaxed selection chooses, or None if there is no exact one within the maximums."""
    allowed = [b for b in exact_batches(queue, batch_size) if within(got(queue, b), bounds, minimums=False)]
    return min(allowed, key=lambda b: relaxed_cost(got(queue, b), bounds, debts), default=None)


def oldest_batch_by_walking(queue: Sequence[Group], batch_size: int, bounds: Mapping[int, Bounds]) -> Arrivals | None:
    """Return what `oldest_batch` does for long queues: the rule word for word, asking `_completable` at each group."""
    taken: list[int] = []
    if not _completable(queue, batch_size, bounds, Counter()):
        return None
    for arrival in range(len(queue)):
        sequences = got(queue, (*taken, arrival))
        if _completable(queue[arrival + 1 :], batch_size, bounds, sequences):
            taken.append(arrival)
        if sum(queue[a].size for a in taken) == batch_size:
            break
    return tuple(taken)


def relaxed_batch_by_walking(
    queue: Sequence[Group], batch_size: int, bounds: Mapping[int, Bounds], debts: Mapping[int, int]
) -> Arrivals | None:
    """Return what `relaxed_batch` does for long queues: the rule word for word, asking `_lowest` at each group."""
    lowest = _lowest(queue, batch_size, bounds, debts, Counter())
    if lowest is None:
        return None
    taken: list[int] = []
    for arrival in range(len(queue)):
        sequences = got(queue, (*taken, arrival))
        if _lowest(queue[arrival + 1 :], batch_size, bounds, debts, sequences) == lowest:
            taken.append(arrival)
    return tuple(taken)


def _lowest(
    rest: Sequence[Group],
    batch_size: int,
    bounds: Mapping[int, Bounds],
    debts: Mapping[int, int],
    sequences: Mapping[int | None, int],
) -> tuple[int, int] | None:
    """Return the lowest `relaxed_cost` of a batch of what was taken and groups of ``rest``; None if there is none."""
    best = {0: (0, 0)}
    for environment in {group.environment for group in rest} | set(bounds) | set(sequences):
        own = {sequences.get(environment, 0)}
        for group in rest:
            if group.environment == environment:
                own |= {total + group.size for total in own if total + group.size <= batch_size}
        bound = {environment: bounds[environment]} if environment in bounds else {}
        further: dict[int, tuple[int, int]] = {}
        for total, mine in product(best, own):
            if total + mine <= batch_size and within({environment: mine}, bound, minimums=False):
                cost = relaxed_cost({environment: mine}, bound, debts)
                whole = (best[total][0] + cost[0], best[total][1] + cost[1])
                further[total + mine] = min(whole, further.get(total + mine, whole))
        best = further
    return best.get(batch_size)


def _completable(
    rest: Sequence[Group], batch_size: int, bounds: Mapping[int, Bounds], sequences: Mapping[int | None, int]
) -> bool:
    """Return whether groups of ``rest`` can make a valid batch of what was taken: sets of sums, one group at a time."""
    totals = {0}
    for environment in {group.environment for group in rest} | set(bounds) | set(sequences):
        own = {sequences.get(environment, 0)}
        counts = Counter(group.size for group in rest if group.environment == environment)
        for size, most in counts.items():
            own = {
                s + size * n
                for s in own
                for n in range(min(most, batch_size // size) + 1)
                if s + size * n <= batch_size
            }
        bound = Bounds() if environment is None else bounds.get(environment, Bounds())
        own = {s for s in own if s >= bound.minimum and (bound.maximum is None or s <= bound.maximum)}
        totals = {t + s for t in totals for s in own if t + s <= batch_size}
    return batch_size in totals


def take(queue: list[Group | None], plan: BatchPlan) -> None:
    """Take a plan's groups out of a queue whose positions stay arrival numbers."""
    for group in plan.groups:
        queue[group.arrival] = None
