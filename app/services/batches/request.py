"""Requests for batches, and their results."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from app.core.batches.leases import Lease, LeasedGroup, extended_deadline_ms, lease_deadline_ms
from app.core.model import NotReady
from app.core.ranks.micro_batches import MicroBatches
from app.core.ranks.requests import ShardRequest, shared
from app.core.runs.view import QueueView
from lachesis.wire.errors import RunRewound


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request for a batch.

    Attributes:
        request_id: The id of the request. The same id gets the same batch again while that is held.
        lease_s: How long to hold the batch, seconds; None for the run's default.
        trainer: The name of the trainer, for operators.
        shard_request: The rank that asks, if the trainer divides its batches.
        rewinds: Number of rewinds of the run when this trainer began; None if unknown.
        chosen: Called with a new batch just before it is taken, so that its reply can be prepared while Redis waits
            for the disk. Taking the batch may still fail. Must not raise.
        of_atropos: Whether a trainer of Atropos asks: its next request ends the lease, which has no deadline.
    """

    request_id: str = ""
    lease_s: float | None = None
    trainer: str = ""
    shard_request: ShardRequest | None = None
    rewinds: int | None = None
    chosen: Callable[["OutgoingBatch"], None] | None = field(default=None, compare=False)
    of_atropos: bool = False

    def check(self, view: QueueView) -> None:
        """Check that the run was not rewound or created again after this trainer began.

        Raises:
            RunRewound: The run was rewound. Its batches belong to the trainer that rewound it.
            StepMismatch: The run has not come to the step that the rank is at.
        """
        if self.rewinds is not None and self.rewinds != view.rewinds:
            since = f"it has {view.rewinds} rewinds, and had {self.rewinds} when this trainer began"
            raise RunRewound(f"the run was rewound: {since}")
        if self.shard_request is not None:
            self.shard_request.check_after(view.step)

    def deadline_ms(self, view: QueueView) -> int:
        """Return the deadline of a lease that is taken now, on the run clock."""
        return lease_deadline_ms(view.clock_ms, self.lease_s, view.policy.lease_s)

    def own_lease(self, view: QueueView, redelivery: Lease | None) -> Lease | None:
        """Return the lease that this request already holds: it took it before, or its ranks hold it.

        Args:
            view: The run.
            redelivery: The batch that is handed out again first, if any. Ranks take it before a later one.

        Raises:
            RanksDisagree: The ranks that hold the batch divide it differently.
        """
        if self.shard_request is not None:
            theirs = shared(view.leases, self.shard_request, view.clock_ms)
            return None if theirs is None or (redelivery is not None and redelivery.step < theirs.step) else theirs
        if not self.request_id:
            return None
        # A divided batch belongs to its ranks: a request for a whole batch with the same id must not take it.
        held = (lease for lease in view.leases if lease.state == "held" and lease.sharding is None)
        return next((lease for lease in held if lease.request_id == self.request_id), None)

    def renewed(self, lease: Lease, view: QueueView) -> Lease:
        """Return a lease that a trainer holds already, with its deadline extended. A later deadline stays."""
        deadline_ms = extended_deadline_ms(lease, view.clock_ms, self.lease_s, view.policy.lease_s)
        return replace(lease, deadline_ms=deadline_ms)


OF_ATROPOS = BatchRequest(of_atropos=True)
"""The request of a trainer of Atropos."""


@dataclass(frozen=True, slots=True)
class BatchShard:
    """The part of a batch that a rank gets.

    Attributes:
        rank: The rank.
        sequences: The sequences of each group that is sent, 0-based, ascending.
        packed: Its micro-batches, if the ranks asked for them.
    """

    rank: int
    sequences: tuple[tuple[int, ...], ...]
    packed: MicroBatches | None = None


@dataclass(frozen=True, slots=True)
class OutgoingBatch:
    """A batch to send.

    Attributes:
        lease: Its lease.
        groups: Its groups in training order. A shard has only the groups that it has sequences of.
        payloads: The columns of the groups. A shard has only those of its sequences.
        view: The run that it was taken from.
        shard: The part that this is, if the batch is divided.
        held_until_ms: The deadline of the lease before a repeated request extended it; 0 if this request took the
            batch. An earlier reply may have arrived, so until then the batch stays with its trainer.
    """

    lease: Lease
    groups: tuple[LeasedGroup, ...]
    payloads: tuple[bytes, ...]
    view: QueueView
    shard: BatchShard | None = None
    held_until_ms: int = 0

    @property
    def is_repeated(self) -> bool:
        """Whether an earlier request took the batch, so that its trainer may have it already."""
        return self.held_until_ms > 0

    def without_payloads(self) -> "OutgoingBatch":
        """Return the batch without its payloads."""
        return replace(self, payloads=())


class ReadAgain(Enum):
    """Why an attempt has no result yet. The run must be read again."""

    CONFLICT = auto()  # something else changed the run; most likely another process took the same groups or batch
    CLEANED_UP = auto()  # the attempt itself dropped damaged groups, or dissolved a batch


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a request for a batch.

    Attributes:
        batch: The batch, or None.
        not_ready: Why there is none, or None.
        acknowledges: Leases of the batches that reached the trainer before it asked. They count as delivered once
            this answer has reached it too.
    """

    batch: OutgoingBatch | None
    not_ready: NotReady | None
    acknowledges: tuple[Lease, ...] = ()
