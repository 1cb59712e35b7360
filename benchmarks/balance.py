"""How evenly a batch is shared out to data-parallel ranks, and how long that takes."""

import heapq
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from app.core.ranks.balancing import balance
from app.core.ranks.costs import CostModel
from benchmarks.arena import Arena
from benchmarks.results import US, Results, Table

Costs = NDArray[np.float64]
Ranks = NDArray[np.int64]

COST = CostModel.parse("24576*L + L^2")
MEDIAN_TOKENS, LONGEST_TOKENS, GROUP = 1000, 32_768, 8
DRAWS = 5

LENGTHS = (
    f"Lengths are lognormal with a median of {MEDIAN_TOKENS:,} tokens, at most {LONGEST_TOKENS:,}. Lone sequences have "
    f"sigma 1; groups of {GROUP} have sigma 0.8 between groups and 0.3 within. Figures are means of {DRAWS} draws."
)
EQUAL = Table(
    key="balance-equal",
    title="Balance over data-parallel ranks, the same number of sequences on each",
    unit="% over the mean load",
    more_is_better=False,
    versus=(),
    note=f"How much longer a step takes than with the mean load on every rank; cost `{COST}`. {LENGTHS} Contiguous and "
    "strided are what is done without looking. LPT is longest first, KK is Karmarkar-Karp by rows of one sequence for "
    "each rank, as verl and slime do. Both are written in the plainest way. Nothing can be below the bound.",
)
FREE = Table(
    key="balance-free",
    title="Balance over data-parallel ranks, any number of sequences on each",
    unit="% over the mean load",
    more_is_better=False,
    versus=(),
    note="The same batches.",
)
DURATION = Table(
    key="balance-duration",
    title="Time to balance a batch",
    unit="ms",
    more_is_better=False,
    versus=(),
    note="The same batches; the best of three calls each. LPT and KK are plain Python and report only loads.",
)


async def measure(_: Arena, results: Results) -> None:
    """Balance the same batches in all ways."""
    for case, lengths, ranks, whole in batches():
        for equal in (True, False):
            measured: defaultdict[tuple[Table, str, str], list[float]] = defaultdict(list)
            for draw in range(DRAWS):
                per_sequence = COST.costs(lengths(np.random.default_rng(draw)))
                costs = per_sequence.reshape(-1, GROUP).sum(axis=1) if whole else per_sequence
                sizes = np.full(len(costs), GROUP) if whole else None
                for what, value in compare(case, costs, ranks, equal, sizes):
                    measured[what].append(value)
            for what, values in measured.items():
                results.add(*what, statistics.mean(values))


def compare(
    case: str, costs: Costs, ranks: int, equal: bool, sizes: Ranks | None
) -> Iterator[tuple[tuple[Table, str, str], float]]:
    """Give what each way makes of one batch: table, case, and way, with the value."""
    ways: dict[str, Callable[[], Costs]]
    if equal:
        ways = {
            "LPT": lambda: longest_first(costs, ranks, len(costs) // ranks),
            "KK": lambda: largest_differences(costs, ranks),
        }
    else:
        ways = {"LPT": lambda: longest_first(costs, ranks, len(costs))}
    table, timed = EQUAL if equal else FREE, f"{case}, {'equal' if equal else 'free'}"
    balanced = balance(costs, ranks, equal=equal, sizes=sizes)
    assert balanced.equal == equal
    yield (table, case, "contiguous"), balanced.contiguous.max_over_mean * 100
    yield (table, case, "strided"), balanced.strided.max_over_mean * 100
    for name, way in ways.items():
        loads = way()
        yield (table, case, name), (loads.max() / loads.mean() - 1) * 100
        yield (DURATION, timed, name), milliseconds(way)
    yield (table, case, US), balanced.imbalance.max_over_mean * 100
    yield (table, case, "bound"), balanced.bound.max_over_mean * 100
    yield (DURATION, timed, US), milliseconds(lambda: balance(costs, ranks, equal=equal, sizes=sizes))


def batches() -> Iterator[tuple[str, Callable[[np.random.Generator], Ranks], int, bool]]:
    """Name batches: how to draw their lengths, over how many ranks, and whether groups stay whole."""
    yield "128 sequences on 8 ranks", lone, 8, False
    for sequences, ranks in ((512, 8), (1024, 64)):
        for whole in (False, True):
            kept = f"{GROUP}, whole" if whole else f"{GROUP}, split"
            yield f"{sequences:,} sequences in groups of {kept}, on {ranks} ranks", groups_of(sequences), ranks, whole


def lone(rng: np.random.Generator) -> Ranks:
    """Draw sequences that have nothing to do with each other."""
    return whole_tokens(rng.lognormal(np.log(MEDIAN_TOKENS), 1, 128))


def groups_of(sequences: int) -> Callable[[np.random.Generator], Ranks]:
    """Draw groups of sequences about as long as each other, because they answer the same question."""

    def draw(rng: np.random.Generator) -> Ranks:
        groups = rng.lognormal(np.log(MEDIAN_TOKENS), 0.8, (sequences // GROUP, 1))
        return whole_tokens((groups * rng.lognormal(0, 0.3, (len(groups), GROUP))).ravel())

    return draw


def whole_tokens(lengths: Costs) -> Ranks:
    """Round up to tokens, and cut what is too long."""
    return np.ceil(lengths).clip(1, LONGEST_TOKENS).astype(np.int64)


def milliseconds(way: Callable[[], object]) -> float:
    """Time the best of three calls."""
    durations = []
    for _ in range(3):
        began = time.perf_counter()
        way()
        durations.append(time.perf_counter() - began)
    return min(durations) * 1000


def longest_first(costs: Costs, ranks: int, most: int) -> Costs:
    """Give each job, dearest first, to the least loaded rank that has fewer than so many; the loads."""
    loads = [0.0] * ranks
    heap = [(0.0, rank, 0) for rank in range(ranks)]
    for cost in sorted(costs.tolist(), reverse=True):
        load, rank, held = heapq.heappop(heap)
        loads[rank] = load + cost
        if held + 1 < most:
            heapq.heappush(heap, (loads[rank], rank, held + 1))
    return np.array(loads)


def largest_differences(costs: Costs, ranks: int) -> Costs:
    """Join rows of one job for each rank, those that differ most first, large shares onto small ones; the loads."""
    ascending = sorted(costs.tolist())
    rows = [ascending[start : start + ranks] for start in range(0, len(ascending), ranks)]
    heap = [(row[0] - row[-1], number, row) for number, row in enumerate(rows)]
    heapq.heapify(heap)
    number = len(rows)
    while len(heap) > 1:
        (_, _, first), (_, _, second) = heapq.heappop(heap), heapq.heappop(heap)
        joined = sorted(small + large for small, large in zip(first, reversed(second), strict=True))
        heapq.heappush(heap, (joined[0] - joined[-1], number, joined))
        number += 1
    return np.array(heap[0][2])
