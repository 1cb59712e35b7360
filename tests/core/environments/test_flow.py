"""Workers that follow their credits, and a trainer that collects batches: a run goes on."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import assume, given
from hypothesis import strategies as st

from app.core.batches.leases import Lease, Portion
from app.core.batches.planning import decide
from app.core.environments.granting import Demand
from app.core.groups.staleness import drop_reason
from app.core.model import Lane, LaneId, QueuedGroup
from app.core.numeric.subset_sum import reachable
from app.core.replay.mixing import mix
from app.core.runs.settings import Policy
from app.core.runs.view import DemandView
from tests.core.views import EMPTY, environment

RELAX_AFTER_MS = 10_000
DURATION_S, PATIENCE_S = 100, 40  # two waits for minimums to be relaxed, and some for groups


@dataclass(frozen=True)
class Worker:
    """An environment that starts what it may start every few seconds. The groups are done the next time."""

    group_size: int
    min_share: float | None
    period_s: int
    weight: float = 1.0


@dataclass(frozen=True)
class Queued:
    arrival: int
    lane: LaneId
    policy_version: int


class Run:
    """A run with its workers. The trainer acknowledges batches when it has collected enough, and sets a version.

    Args:
        batch_size: Sequences in a batch.
        policy: The settings of the run.
        workers: Its environments.
        collects: Batches that the trainer collects.
        replayed: Groups of each environment that may be replayed.
    """

    def __init__(self, batch_size: int, policy: Policy, workers: list[Worker], collects: int, replayed: int) -> None:
        assert EMPTY.config is not None
        self.workers, self.collects = workers, collects
        self.lanes: list[LaneId] = [(number, one.group_size) for number, one in enumerate(workers)]
        self.candidates = [lane for lane in self.lanes for _ in range(replayed)]
        self.queue: list[Queued] = []
        self.arrivals = self.batches = 0
        self.view: DemandView = replace(
            EMPTY,
            config=EMPTY.config.model_copy(update={"batch_size": batch_size}),
            policy=policy,
            environments={
                number: environment(number, one.group_size, one.min_share, weight=one.weight, members=1)
                for number, one in enumerate(workers)
            },
        )

    def second(self) -> bool:
        """Let a second pass. Return whether the trainer got a batch."""
        for number, worker in enumerate(self.workers):
            if self.view.clock_ms // 1000 % worker.period_s == 0:
                self._work(number)
        taken = self._take()
        if len(self.view.leases) == self.collects:
            version = self.view.policy_version + 1
            self.view = replace(self.view, leases=(), policy_version=version)
            self.queue = [one for one in self.queue if not drop_reason(one.policy_version, version, self.view.policy)]
        self._see(clock_ms=self.view.clock_ms + 1000)
        return taken

    def _work(self, number: int) -> None:
        done = self.view.running.get(number, 0)
        for _ in range(done):
            self.arrivals += 1
            self.queue.append(Queued(self.arrivals, self.lanes[number], self.view.policy_version))
        self._see(running={**self.view.running, number: 0})
        self._see(running={**self.view.running, number: Demand("run", self.view).of(number).groups})

    def _see(self, **changes: object) -> None:
        self.view = replace(self.view, lanes=Counter(one.lane for one in self.queue), **changes)

    def _take(self) -> bool:
        view, lanes = self.view, [self._lane(lane) for lane in self.view.lanes]
        mixed = mix(view.batch_size, view.policy.fresh_fraction, lanes, self.candidates, view.live.shares, view.debts)
        if mixed is not None:
            self._see(unfilled=False, debts=mixed.debts, last_batch_ms=view.clock_ms)
            self._lease(Counter(self.candidates[position] for position in mixed.replayed), mixed.fresh.groups)
            return True
        decision = decide(view, lanes, RELAX_AFTER_MS)
        self._see(unfilled=decision.unfilled, conflict_since_ms=decision.conflict_since_ms, scarce=decision.scarce)
        if decision.plan is None:
            return False
        self._see(debts=decision.debts, last_batch_ms=view.clock_ms)
        self._lease(Counter(), decision.plan.groups)
        return True

    def _lane(self, lane: LaneId) -> Lane:
        heads = tuple(QueuedGroup(one.arrival, str(one.arrival)) for one in self.queue if one.lane == lane)
        return Lane(*lane, len(heads), heads)

    def _lease(self, replayed: Counter[LaneId], fresh: tuple[QueuedGroup, ...]) -> None:
        arrivals = {group.arrival for group in fresh}
        leaving = Counter(one.lane for one in self.queue if one.arrival in arrivals)
        self.queue = [one for one in self.queue if one.arrival not in arrivals]
        self.batches += 1
        contents, again = _portions(leaving + replayed), _portions(replayed)
        name = f"batch {self.batches}"
        lease = Lease(name, "held", "worker", 1, self.batches, relaxed=False, contents=contents, replayed=again)
        self._see(leases=(*self.view.leases, lease))


def _portions(groups: Mapping[LaneId, int]) -> tuple[Portion, ...]:
    return tuple(Portion(number, count, count * size) for (number, size), count in groups.items())


@given(
    batch_size=st.sampled_from([8, 12, 16]),
    max_staleness=st.integers(0, 3),
    fresh_fraction=st.sampled_from([0.25, 0.5, 0.9, 1.0]),
    workers=st.lists(
        st.builds(
            Worker,
            group_size=st.sampled_from([1, 2, 3, 4, 5, 7]),
            min_share=st.sampled_from([None, 0.1, 0.25]),
            period_s=st.integers(1, 3),
            weight=st.sampled_from([1.0, 0.0]),
        ),
        min_size=1,
        max_size=4,
    ),
    collects=st.integers(1, 4),
    replayed=st.sampled_from([0, 2, 8]),
)
def test_a_trainer_gets_batches_also_if_it_collects_as_many_as_are_looked_ahead(
    batch_size: int, max_staleness: int, fresh_fraction: float, workers: list[Worker], collects: int, replayed: int
) -> None:
    assume(reachable({worker.group_size: batch_size for worker in workers}, batch_size) >> batch_size & 1)
    policy = Policy(max_staleness=max_staleness, fresh_fraction=fresh_fraction)
    run = Run(batch_size, policy, workers, min(collects, max_staleness + 1), replayed)
    waited_s = 0
    for _ in range(DURATION_S):
        waited_s = 0 if run.second() else waited_s + 1
        assert waited_s <= PATIENCE_S, (run.view.lanes, run.view.running, run.view.leases)
