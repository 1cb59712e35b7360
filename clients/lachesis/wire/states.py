"""The states of things and the reasons for them, as the API calls them: each list once, for the service and the SDK."""

from typing import Literal, get_args

EVERY_WRITE = "every acknowledged write is fsynced"
"""How ``durability`` of the status ends if a crash of Redis loses nothing. ``doctor`` looks for it."""

GroupState = Literal["queued", "buffered", "leased", "kept", "delivered", "dropped"]
"""Where a group is. ``kept``: it was delivered, and its batch is kept for a rewind."""

GROUP_STATES: tuple[GroupState, ...] = get_args(GroupState)
QUEUED, BUFFERED, LEASED, KEPT, DELIVERED, DROPPED = GROUP_STATES

PlaceOfGroup = Literal["queued", "buffered", "leased", "delivered", "dropped"]
"""Where one group is. ``delivered`` stands for ``kept`` as well."""

LeaseState = Literal["sending", "sent", "held", "returned", "quarantined"]
"""The state of a batch that was taken.

``sending`` and ``sent``: on its way to a trainer of Atropos, or with it. ``held``: held by a trainer of the native API.
``returned``: waits to be handed out again. ``quarantined``: not handed out any more, because its leases ran out too
often.
"""

LEASE_STATES: tuple[LeaseState, ...] = get_args(LeaseState)

LeaseOutcome = Literal["acknowledged", "given_back"]
"""How a trainer ends the lease of a batch or of a sample."""

BatchOutcome = Literal[LeaseOutcome, "discarded"]
"""How a batch ended. ``discarded``: its groups were dropped."""

SampleOutcome = Literal[LeaseOutcome, "expired", "overtaken"]
"""How a sample of a replay buffer ended. ``overtaken``: a snapshot of the buffer was restored."""

LeaseAnswer = Literal[LeaseOutcome, "held"]
"""What an ack, a nack or an extension made of a lease."""

BlockedOn = Literal["samples", "inserts", "chunks"]
"""What blocks a side of a replay buffer: the other side's samples or inserts, or chunks to sample from."""

Missing = Literal["no_items", "in_flight", "not_drawn"]
"""Why a sample of a curriculum has fewer items than requested: what is true of all other items."""

ChunkSorting = Literal["order", "weights", "versions", "uses"]
"""The sorted sets of sampleable chunks: in the order of insertion, by weight, by policy version, by uses."""

CHUNK_SORTINGS: tuple[ChunkSorting, ...] = get_args(ChunkSorting)

ChunkPlace = Literal["sampleable", "reserved", "archived"]
"""The places of chunks in a replay buffer."""

CHUNK_PLACES: tuple[ChunkPlace, ...] = get_args(ChunkPlace)
SAMPLEABLE, RESERVED, ARCHIVED = CHUNK_PLACES

FragmentRefusal = Literal["old_session", "future_session", "future_version", "too_large"]
"""Why a replay buffer refuses a fragment: its number is still free.

It is of another session; the version that sampled it is not in force yet; or a chunk with it does not fit. A fragment
that is not usable for another reason is accepted and dropped.
"""

FRAGMENT_REFUSALS: tuple[FragmentRefusal, ...] = get_args(FragmentRefusal)

FragmentOutcome = Literal["stored", "repeated", "late", FragmentRefusal, "stale", "gap", "evicted"]
"""What happened to a submitted fragment.

``stored`` or ``repeated``. Or it is refused: ``late``, or for a `FragmentRefusal`. Or it is accepted and dropped at
once: ``stale``, ``gap`` or ``evicted``.
"""

Arrival = Literal["stored", "repeated", "conflict", "late", "old_session"]
"""The outcome for a fragment that arrived.

In this order: it is stored; it is or was here with the same contents, so it is not stored again; it is here with other
contents. Or it belongs to a gap that was given up, or its session is over. Only ``stored`` changes the fragments. Every
outcome counts as a sign of life of the worker.
"""

FragmentDropReason = Literal["gap", "expired", "old_session"]
"""Why a stored fragment will be in no chunk.

In this order: the gap after it was given up before its chunk was full, or the next fragment is too stale; its worker
fell silent; its session is over.
"""

FRAGMENT_DROP_REASONS: tuple[FragmentDropReason, ...] = get_args(FragmentDropReason)

ChunkDropReason = Literal[FragmentRefusal, "stale", "expired", "used_up", "evicted"]
"""Why a chunk may not be inserted or sampled."""

CHUNK_DROP_REASONS: tuple[ChunkDropReason, ...] = get_args(ChunkDropReason)

FilterName = Literal["zero_variance", "reward_range", "pass_rate"]
"""Name of each filter: in receipts, in counts of dropped groups, and after ``filter_`` in the settings."""

FILTERS: tuple[FilterName, ...] = get_args(FilterName)

DropReason = Literal[
    "payload_lost",
    "corrupt",
    "stale",
    "future_version",
    "expired",
    "quarantined",
    "deleted",
    "too_long",
    FilterName,
]
"""Why a group leaves the store without being delivered and acknowledged. A filter is a reason, too."""

DROP_REASONS: tuple[DropReason, ...] = get_args(DropReason)


def parse_drop_reason(text: str) -> DropReason | None:
    """Return the drop reason of this name, or None for any other name."""
    return next((reason for reason in DROP_REASONS if reason == text), None)
