"""Count in memory what passes through this process, for the history of runs."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.core.batches.leases import Lease, LeasedGroup
from app.core.environments.record import EnvironmentRecord
from app.core.groups.staleness import staleness
from app.core.history.series import MOST_NAME, OTHERS, HistorySpan, Tally, with_series
from app.core.runs.view import QueueView
from app.store.groups.admission_context import AdmissionContext
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Outcome, Placement

_MOST_UNCOUNTED = 1024  # arrivals of a run: to count many together costs less


class _Arrival(NamedTuple):
    """A group that came in, of the environment with this name in a history."""

    environment: str
    sequences: int
    tokens: int
    size_bytes: int
    reward: float | None


@dataclass(slots=True)
class _Counts:
    """The counts of the run with this first epoch; 0 until it is configured."""

    first_epoch: int
    tally: Tally = field(default_factory=Tally)
    uncounted: list[_Arrival] = field(default_factory=list)

    def are_of(self, first_epoch: int) -> bool:
        """Return whether they are of the run with this first epoch, and not of another one of its name."""
        return self.first_epoch in (0, first_epoch)

    def count_arrivals(self) -> None:
        """Add what came in to the tally."""
        came = defaultdict[str, list[_Arrival]](list)
        for arrival in self.uncounted:
            came[arrival.environment].append(arrival)
        for environment, own in came.items():
            counts = {
                "groups_in": len(own),
                "sequences_in": sum([arrival.sequences for arrival in own]),
                "tokens_in": sum([arrival.tokens for arrival in own]),
                "bytes_in": sum([arrival.size_bytes for arrival in own]),
            }
            values: dict[str, list[float | None]] = {
                "reward_in": [arrival.reward for arrival in own],
                "length_in": [arrival.tokens / arrival.sequences for arrival in own],
            }
            self.tally.note(environment, counts, values)
        self.uncounted.clear()


class HistoryRecorder:
    """Counts groups that come in and go out, by run, until `take` fetches the counts."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    def submitted(
        self,
        run: str,
        context: AdmissionContext,
        groups: Sequence[EncodedGroup],
        placements: Sequence[Placement],
        outcomes: Sequence[Outcome],
    ) -> None:
        """Count the groups that are new, whether they are stored or dropped on arrival."""
        counts, own = self._counts_of(run, context.first_epoch), with_series(context.environments)
        for group, placement, outcome in zip(groups, placements, outcomes, strict=True):
            if not outcome.repeated:
                name = series_name(placement.environment, context.environments, own)
                arrival = _Arrival(name, group.size, group.weight.tokens, len(group.payload), group.reward)
                counts.uncounted.append(arrival)
        if len(counts.uncounted) >= _MOST_UNCOUNTED:
            counts.count_arrivals()

    def handed_out(
        self, run: str, view: QueueView, lease: Lease, groups: Sequence[LeasedGroup], rewards: Sequence[float | None]
    ) -> None:
        """Count a new batch. Its groups from the replay buffer do not count: they were handed out before.

        Args:
            run: The run's name.
            view: The run when the batch was planned.
            lease: The lease of the batch.
            groups: The groups of the batch, those from the queue first.
            rewards: The mean reward of each group from the queue.
        """
        tally = self._counts_of(run, view.first_epoch).tally
        facts = tally.span.run
        facts.count("batches")
        facts.count("relaxed_batches", int(lease.relaxed))
        if lease.sharding is not None:
            facts.measure("rank_imbalance", lease.sharding.balance.imbalance)
        went = defaultdict[int | None, list[tuple[LeasedGroup, float | None]]](list)
        for group, reward in zip(groups, rewards, strict=False):
            went[group.environment].append((group, reward))
        version, now_ms, named = view.policy_version, view.clock_ms, with_series(view.environments)
        for environment, own in went.items():
            counts = {
                "groups_out": len(own),
                "sequences_out": sum(group.size for group, _ in own),
                "tokens_out": sum(group.tokens for group, _ in own),
                "bytes_out": sum(group.payload_bytes for group, _ in own),
            }
            values: dict[str, list[float | None]] = {
                "reward_out": [reward for _, reward in own],
                "length_out": [group.tokens / group.size for group, _ in own],
                "staleness_out": [staleness(group.policy_version, version) for group, _ in own],
                "waiting_s": [max(0, now_ms - group.accepted_ms) / 1000 for group, _ in own],
            }
            tally.note(series_name(environment, view.environments, named), counts, values)

    def runs(self) -> list[str]:
        """Return the runs with counts."""
        return list(self._counts)

    def take(self, run: str, first_epoch: int) -> HistorySpan:
        """Fetch the counts of a run, and start again. Those of another run of its name are dropped.

        Args:
            run: The run's name.
            first_epoch: The first epoch of the run that there is now; 0 if it has none.
        """
        counts = self._counts.pop(run, None)
        if counts is None or not counts.are_of(first_epoch):
            return HistorySpan()
        counts.count_arrivals()
        return counts.tally.close()

    def _counts_of(self, run: str, first_epoch: int) -> _Counts:
        counts = self._counts.get(run)
        if counts is None or not counts.are_of(first_epoch):
            counts = self._counts[run] = _Counts(first_epoch)
        counts.first_epoch = first_epoch
        return counts


def series_name(environment: int | None, environments: Mapping[int, EnvironmentRecord], own: Collection[int]) -> str:
    """Return the name of an environment in a history.

    Args:
        environment: The environment, or None for groups without one.
        environments: The environments of the run.
        own: Those with series of their own (`with_series`).
    """
    record = environments.get(environment) if environment is not None and environment in own else None
    return OTHERS if record is None else record.name[:MOST_NAME]
