"""What passes between those who ask for a batch and those who hand it out."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from app.core.batches.leases import Lease, LeasedGroup, LeaseState
from app.core.errors import RunRewound
from app.core.model import NotReady
from app.core.ranks.micro_batches import MicroBatches
from app.core.ranks.requests import ShardRequest, shared
from app.core.ranks.sharding import taken_by
from app.core.runs.view import RunView
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Timing:
    """The process's time limits, milliseconds on the run clock.

    Attributes:
        environment_ttl_ms: Silence after which an environment counts as dead.
        relax_after_ms: Wait after which conflicting minimums are relaxed, where the run does not say.
        buffer_release_ms: Wait in the set buffer after which a group joins the queue.
        orphan_ttl_ms: Age after which a payload that no group names is removed.
    """

    environment_ttl_ms: int
    relax_after_ms: int
    buffer_release_ms: int
    orphan_ttl_ms: int

    @classmethod
    def of(cls, settings: Settings) -> "Timing":
        """Read the limits from the settings of the process."""
        return cls(
            environment_ttl_ms=round(settings.environment_ttl_s * 1000),
            relax_after_ms=round(settings.relax_after_s * 1000),
            buffer_release_ms=round(settings.buffer_release_s * 1000),
            orphan_ttl_ms=round(settings.orphan_ttl_s * 1000),
        )


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Who takes a batch to hold it under a lease with a deadline.

    Attributes:
        request_id: Names the request: repeated, it gets the same batch while that is held.
        lease_s: How long to hold it, seconds; None: as the run says.
        trainer: Who asks, for operators.
        seat: The rank that asks, of a trainer that divides its batches.
        rewinds: Number of rewinds of the run when this trainer began; None: unknown.
        chosen: Called with a batch that is new when it is about to be taken, which may fail yet: what its reply needs
            can be made while Redis waits for the disk. Must not raise.
    """

    request_id: str = ""
    lease_s: float | None = None
    trainer: str = ""
    seat: ShardRequest | None = None
    rewinds: int | None = None
    chosen: Callable[["Batch"], None] | None = field(default=None, compare=False)

    def check(self, view: RunView) -> None:
        """Check that the run was not rewound after this trainer began.

        Raises:
            RunRewound: It was: its batches belong to the trainer that rewound it.
        """
        if self.rewinds is not None and self.rewinds != view.rewinds:
            since = f"it has {view.rewinds} rewinds, and had {self.rewinds} when this trainer began"
            raise RunRewound(f"the run was rewound: {since}")

    def deadline_ms(self, view: RunView) -> int:
        """Return until when it holds what it takes now, run clock."""
        return view.clock_ms + round(1000 * (view.policy.lease_s if self.lease_s is None else self.lease_s))

    def own_lease(self, view: RunView, waiting: Lease | None) -> Lease | None:
        """Find the lease that this request has a right to already: it took it before, or its ranks have it.

        Args:
            view: The run.
            waiting: The batch that would be handed out again first, if any. Ranks take it before a later one.

        Raises:
            RanksDisagree: The ranks that have it divide it otherwise.
        """
        if self.seat is not None:
            theirs = shared(view.leases, self.seat, view.clock_ms)
            return None if theirs is None or (waiting is not None and waiting.step < theirs.step) else theirs
        if not self.request_id:
            return None
        # What is divided belongs to ranks; who asks for whole batches under an id of theirs must not take it away.
        held = (lease for lease in view.leases if lease.state is LeaseState.HELD and lease.sharding is None)
        return next((lease for lease in held if lease.request_id == self.request_id), None)

    def renewed(self, lease: Lease, view: RunView) -> Lease:
        """Return a lease that is in hand, held from now on."""
        if self.seat is None or lease.sharding is None:
            return replace(lease, deadline_ms=self.deadline_ms(view))
        later_ms = max(lease.deadline_ms, self.deadline_ms(view))  # other ranks have it, for as long as they said
        return replace(lease, deadline_ms=later_ms, sharding=taken_by(lease.sharding, self.seat.rank))


@dataclass(frozen=True, slots=True)
class BatchShard:
    """The part of a batch that a rank gets.

    Attributes:
        rank: The rank.
        sequences: Of each group that is sent, the sequences, 0-based, ascending.
        packed: Its micro-batches, if the ranks want them.
    """

    rank: int
    sequences: tuple[tuple[int, ...], ...]
    packed: MicroBatches | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch to send.

    Attributes:
        lease: What it is held under.
        groups: Its groups in training order; of a shard, those it has a part in.
        payloads: Their columns; of a shard, only its sequences'.
        view: The run it was taken from.
        shard: The part of it that this is, if it is divided.
    """

    lease: Lease
    groups: tuple[LeasedGroup, ...]
    payloads: tuple[bytes, ...]
    view: RunView
    shard: BatchShard | None = None

    def without_payloads(self) -> "Batch":
        """The same for those who only need to know which it is."""
        return replace(self, payloads=())


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a trainer that asked gets.

    Attributes:
        batch: The batch, or None.
        not_ready: Why there is none, or None.
        acknowledges: The leases whose batches had reached the trainer before it asked: once this answer has
            reached it too, they are delivered.
    """

    batch: Batch | None
    not_ready: NotReady | None
    acknowledges: tuple[Lease, ...] = ()
