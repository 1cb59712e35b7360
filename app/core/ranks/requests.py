"""Choose the batch that a rank gets: one that other ranks already share, or the next."""

from collections.abc import Iterable
from dataclasses import dataclass

from app.core.batches.leases import Lease, is_expired
from app.core.model import NotReady
from app.core.ranks.sharding import ShardingSpec, disagreement
from app.core.wording import listed
from lachesis.wire.errors import InvalidField, RanksDisagree, StepMismatch


@dataclass(frozen=True, slots=True)
class ShardRequest:
    """A rank that asks for its shard.

    Attributes:
        rank: The rank, ``0 <= rank < spec.world_size``.
        spec: How it wants a batch to be divided.
        after: Step of the last batch that it already has: it asks for the one after that, or for an earlier one that
            was handed out again to others. None: it asks for the oldest that it has not acknowledged.
        step: The step it says it is at, or None.
        request_id: The id of the request, if it has one. A repetition gets the same shard.
    """

    rank: int
    spec: ShardingSpec
    after: int | None = None
    step: int | None = None
    request_id: str = ""

    def has_later(self, step: int) -> bool:
        """Return whether the rank says that it has the batch of this step or a later one."""
        return self.after is not None and step <= self.after

    def wants(self, lease: Lease, clock_ms: int) -> bool:
        """Return whether the rank asks for this batch.

        A batch that was handed out again needs all ranks again, as does one that a rank gave back whole, or that was
        taken without ranks. So a rank that does not hold it gets it, too, whatever ``after`` is. If the reply is lost,
        the same request gets it again.

        Args:
            lease: The lease of the batch.
            clock_ms: The run clock now.
        """
        sharding = lease.sharding
        if sharding is None or not self.has_later(lease.step):
            return True
        if self.rank not in sharding.taken or is_expired(lease, clock_ms):
            return lease.delivery_count > 1 or lease.given_back != ""
        return (self.rank, self.request_id) in sharding.requests

    def check(self, step: int) -> None:
        """Check that the rank is at the step of the batch it would get.

        Raises:
            StepMismatch: The rank is at another step.
        """
        if self.step is not None and self.step != step:
            raise StepMismatch(f"rank {self.rank} is at step {self.step}; the next batch for it is that of step {step}")

    def check_after(self, run_step: int) -> None:
        """Check that the run has reached the step of the batch that this rank says it has.

        Otherwise ranks would get different batches, because each rank skips the steps up to its ``after``.

        Raises:
            StepMismatch: It has not. The run was created again, or an earlier state of it was restored.
        """
        if self.spec.world_size > 1 and self.has_later(run_step + 1):
            has = f"rank {self.rank} has the batch of step {self.after}"
            why = "it was created again, or an earlier state of it was restored"
            raise StepMismatch(f"{has}, and the run is at step {run_step}: {why}")

    def check_size(self, batch_size: int) -> None:
        """Check that a batch of this size can be divided as the rank asks.

        Raises:
            InvalidField: All ranks should have the same number of sequences, and the size does not allow it.
        """
        ranks = self.spec.world_size
        if self.spec.equal_sequences and batch_size % ranks:
            raise InvalidField(
                f"{batch_size} sequences cannot be the same number on each of {ranks} ranks", ("equal_sequences",)
            )


def awaiting(not_ready: NotReady, leases: Iterable[Lease]) -> NotReady:
    """Add the ranks still missing to the reason. Until they acknowledge, no group may be needed.

    Args:
        not_ready: Why there is no batch.
        leases: The leases of the run, by step.
    """
    for lease in leases:
        if lease.sharding is None or lease.state != "held" or not lease.sharding.acknowledged:
            continue
        ranks = lease.sharding.awaited
        if ranks:
            who = f"rank{'s' * (len(ranks) > 1)} {listed(ranks)}"
            return not_ready.adding(f"the batch of step {lease.step} awaits {who}")
    return not_ready


def shared(leases: Iterable[Lease], shard_request: ShardRequest, clock_ms: int) -> Lease | None:
    """Return the oldest batch that other ranks share and this rank has not trained on; None if there is none.

    Args:
        leases: Of the run, by step.
        shard_request: The rank.
        clock_ms: The run clock now.

    Raises:
        RanksDisagree: The ranks that have the batch divide it in another way.
    """
    for lease in leases:
        if lease.sharding is None or lease.state != "held" or is_expired(lease, clock_ms):
            continue
        if not shard_request.wants(lease, clock_ms) or shard_request.rank in lease.sharding.acknowledged:
            continue
        different = disagreement(lease.sharding.spec, shard_request.spec)
        if different is not None:
            left_s = (lease.deadline_ms - clock_ms) / 1000
            hint = f"its lease runs out in {left_s:.0f} s, and ends at once by nack or rewind"
            raise RanksDisagree(f"batch {lease.batch_id} of step {lease.step}: {different}; {hint}")
        return lease
    return None
