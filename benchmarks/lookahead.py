"""What a lookahead gains when it chooses batches: time of ranks, and how often groups are passed over."""

import statistics
import time
from dataclasses import dataclass

import numpy as np

from app.core.model import BatchPlan, PlannedGroup
from app.core.ranks.balancing import balance
from app.core.ranks.lookahead import LookaheadCandidate, choose_balanced, delays_after
from app.core.ranks.sharding import ShardingSpec
from benchmarks.arena import Arena
from benchmarks.balance import COST, GROUP, groups_of, lone
from benchmarks.results import Results, Table

BATCHES, DEPTHS, MOST = 150, (1, 2, 4, 8), 2

SLOWER = Table(
    key="lookahead-time",
    title="Training on batches chosen with a lookahead",
    unit="% over the mean load",
    more_is_better=False,
    versus=(),
    note=f"How much longer {BATCHES} steps in a row take than if every rank always had the mean load. The queue holds "
    f"`balance_window` batches of groups, one without a lookahead. A group is passed over at most {MOST} times. "
    "Groups stay whole. Lengths as above.",
)
DELAY = Table(
    key="lookahead-delay",
    title="How often a group is passed over, on the average",
    unit="batches",
    more_is_better=False,
    versus=(),
    note="The same batches.",
)
DURATION = Table(
    key="lookahead-duration",
    title="Time to choose with a lookahead",
    unit="ms",
    more_is_better=False,
    versus=(),
    note="The same batches; the median of a batch. The division of the batch takes further time.",
)


@dataclass(slots=True)
class Trained:
    """What a row of steps took: the slowest rank's load and the mean load of each, delays, and time to choose."""

    slowest: float
    mean: float
    delay: float
    choose_ms: float


async def measure(_: Arena, results: Results) -> None:
    """Train on the same stream of groups with each depth of the lookahead."""
    for case, sequences, ranks, size in (
        ("16 groups of 8 on 8 ranks", 128, 8, GROUP),
        ("128 groups of 8 on 64 ranks", 1024, 64, GROUP),
        ("128 sequences on 8 ranks", 128, 8, 1),
    ):
        for depth in DEPTHS:
            trained = simulate(stream(sequences, size), sequences // size, ranks, size, depth)
            name = "no lookahead" if depth == 1 else f"lookahead {depth}"
            results.add(SLOWER, case, name, (trained.slowest / trained.mean - 1) * 100)
            if depth > 1:
                results.add(DELAY, case, name, trained.delay)
                results.add(DURATION, case, name, trained.choose_ms)


def stream(sequences: int, size: int) -> list[float]:
    """Draw the costs of groups that arrive one after the other."""
    rng = np.random.default_rng(1)
    drawn = []
    for _ in range(BATCHES + max(DEPTHS)):
        costs = COST.costs(groups_of(sequences)(rng) if size > 1 else lone(rng))
        drawn += costs.reshape(-1, size).sum(axis=1).tolist()
    return drawn


def simulate(costs: list[float], groups: int, ranks: int, size: int, depth: int) -> Trained:
    """Take batch after batch, each from the oldest that wait."""
    lane, spec = (0, size), ShardingSpec(ranks)
    arriving = iter([LookaheadCandidate(arrival, str(arrival), cost) for arrival, cost in enumerate(costs)])
    queue: list[LookaheadCandidate] = []
    delays: dict[str, int] = {}
    slowest = mean = passed_over = 0.0
    durations = []
    for _ in range(BATCHES):
        queue += [next(arriving) for _ in range(groups * depth - len(queue))]
        law = BatchPlan(tuple(PlannedGroup(one.arrival, one.group_id, *lane) for one in queue[:groups]))
        began = time.perf_counter()
        chosen = choose_balanced(law, {lane: queue}, spec, delays, MOST) if depth > 1 else law
        durations.append(time.perf_counter() - began)
        delays = delays_after(law, chosen, delays, list(delays))
        passed_over += len(law.groups) - len(set(law.groups) & set(chosen.groups))
        taken = {group.group_id for group in chosen.groups}
        own = [one.cost for one in queue if one.group_id in taken]
        loads = balance(own, ranks, sizes=[size] * groups).loads
        slowest, mean = slowest + float(loads.max()), mean + float(loads.mean())
        queue = [one for one in queue if one.group_id not in taken]
    return Trained(slowest, mean, passed_over / (BATCHES * groups), statistics.median(durations) * 1000)
