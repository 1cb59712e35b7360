"""Remember the last leases that this process has handed out. Mostly, the same process ends them."""

from dataclasses import dataclass

from app.core.batches.leases import Lease
from app.core.runs.settings import Policy
from app.core.runs.view import QueueView

_MOST_LEASES = 1000  # of all runs
_MOST_SHARES = 64  # environments in a lease that is remembered: it names each of them


@dataclass(frozen=True, slots=True)
class RecentLease:
    """A lease that this process has handed out, with the policy and the epoch of its run at that time."""

    lease: Lease
    policy: Policy
    epoch: int


class RecentLeases:
    """The last leases that this process has handed out, of undivided batches with few environments."""

    def __init__(self) -> None:
        self._recent: dict[str, RecentLease] = {}  # by batch

    def remember(self, lease: Lease, view: QueueView) -> None:
        """Remember a lease that was taken on a view, unless it is divided or large."""
        is_small = len(lease.contents) + len(lease.debts) <= _MOST_SHARES
        if lease.state == "held" and lease.sharding is None and is_small:
            self._recent[lease.batch_id] = RecentLease(lease, view.policy, view.epoch)
            if len(self._recent) > _MOST_LEASES:
                del self._recent[next(iter(self._recent))]

    def recall(self, batch_id: str) -> RecentLease | None:
        """Return the lease of a batch as it was handed out, once; None if that is not known here."""
        return self._recent.pop(batch_id, None)
