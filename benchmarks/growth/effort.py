"""How much to measure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from benchmarks.results import Results

WARM_UPS = 2  # rounds
WARM_UP_NOTE = (
    f"The first {WARM_UPS} rounds warm up and do not count. On a virtual machine, memory that is used for the first "
    "time costs several times as much."
)


@dataclass(frozen=True, slots=True)
class Effort:
    """Sizes, rounds, and how long each call is repeated in a round.

    Attributes:
        rounds: Rounds, in each of which all versions are measured.
        seconds: How long a call is repeated in a round.
        least_calls: How often it is repeated at least, and how often if it needs preparation.
        environments: Environments in a run.
        runs: Runs of a service.
        idle_s: How long nothing is done, or others are watched.
        rounds_of_sweeps: Rounds where each is long by itself.
        stale_groups: Groups that become stale at once.
        deleted_bytes: Payload of a run that is deleted.
        later_s: How long after that to look again.
        remembered_groups: Groups whose memory is measured.
        items: Items of a curriculum.
        queued_groups: Groups in the queue of a run that pages show.
        watched_s: How long open pages are watched.
    """

    rounds: int
    seconds: float
    least_calls: int
    environments: tuple[int, ...]
    runs: int
    idle_s: float
    rounds_of_sweeps: int
    stale_groups: int
    deleted_bytes: int
    later_s: float
    remembered_groups: int
    items: int
    queued_groups: int
    watched_s: float


FULL = Effort(
    rounds=5,
    seconds=0.5,
    least_calls=10,
    environments=(10, 100, 1_000, 10_000),
    runs=1_000,
    idle_s=5.0,
    rounds_of_sweeps=3,
    stale_groups=100_000,
    deleted_bytes=2_000_000_000,
    later_s=60.0,
    remembered_groups=100_000,
    items=1_000_000,
    queued_groups=1_000_000,
    watched_s=60.0,
)
QUICK = Effort(
    rounds=3,
    seconds=0.2,
    least_calls=5,
    environments=(10, 100, 1_000),
    runs=200,
    idle_s=2.0,
    rounds_of_sweeps=1,
    stale_groups=10_000,
    deleted_bytes=100_000_000,
    later_s=5.0,
    remembered_groups=10_000,
    items=10_000,
    queued_groups=10_000,
    watched_s=20.0,
)


def warmed_up(effort: Effort, results: Results) -> Iterator[Results]:
    """Yield where to note the figures of each round. Those of the first rounds are thrown away."""
    yield from (Results() for _ in range(WARM_UPS))
    yield from repeat(results, effort.rounds)
