"""Count in memory what passes through this process, for the history of runs."""

from collections.abc import Mapping, Sequence

from app.core.batches.leases import Lease, LeasedGroup
from app.core.environments.record import EnvironmentRecord
from app.core.groups.staleness import staleness
from app.core.history.series import OTHERS, HistorySpan, Tally
from app.core.numeric.short_sums import mean
from app.core.runs.view import QueueView
from app.store.groups.codec import EncodedGroup
from app.store.groups.entries import Outcome, Placement

_MOST_NAME = 200  # characters of an environment's name; names with the same beginning count together


class HistoryRecorder:
    """Counts groups that come in and go out, by run, until `take` fetches the counts."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}

    def submitted(
        self,
        run: str,
        groups: Sequence[EncodedGroup],
        placements: Sequence[Placement],
        outcomes: Sequence[Outcome],
        environments: Mapping[int, EnvironmentRecord],
    ) -> None:
        """Count the groups that are new, whether they are stored or dropped on arrival."""
        tally = self._tally(run)
        for group, placement, outcome in zip(groups, placements, outcomes, strict=True):
            if not outcome.repeated:
                tokens = group.weight.tokens
                counts = {
                    "groups_in": 1,
                    "sequences_in": group.size,
                    "tokens_in": tokens,
                    "bytes_in": len(group.payload),
                }
                reward = mean(group.rewards) if len(group.rewards) else None
                tally.note(
                    series_name(placement.environment, environments),
                    counts,
                    {"reward_in": reward, "length_in": tokens / group.size},
                )

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
        tally = self._tally(run)
        facts = tally.span.run
        facts.count("batches")
        facts.count("relaxed_batches", int(lease.relaxed))
        if lease.sharding is not None:
            facts.measure("rank_imbalance", lease.sharding.balance.imbalance)
        for group, reward in zip(groups, rewards, strict=False):
            counts = {
                "groups_out": 1,
                "sequences_out": group.size,
                "tokens_out": group.tokens,
                "bytes_out": group.payload_bytes,
            }
            values = {
                "reward_out": reward,
                "length_out": group.tokens / group.size,
                "staleness_out": staleness(group.policy_version, view.policy_version),
                "waiting_s": max(0, view.clock_ms - group.accepted_ms) / 1000,
            }
            tally.note(series_name(group.environment, view.environments), counts, values)

    def runs(self) -> list[str]:
        """Return the runs with counts."""
        return list(self._tallies)

    def take(self, run: str) -> HistorySpan:
        """Fetch the counts of a run, and start again."""
        tally = self._tallies.pop(run, None)
        return HistorySpan() if tally is None else tally.close()

    def _tally(self, run: str) -> Tally:
        return self._tallies.setdefault(run, Tally())


def series_name(environment: int | None, environments: Mapping[int, EnvironmentRecord]) -> str:
    """Return the name of an environment in a history."""
    record = None if environment is None else environments.get(environment)
    return OTHERS if record is None else record.name[:_MOST_NAME]
