"""The states of things and the reasons for them, as the API calls them: each list once, for the service and the SDK."""

from typing import Literal, get_args

LeaseState = Literal["sending", "sent", "held", "returned", "quarantined"]
"""The state of a batch that was taken.

``sending`` and ``sent``: on its way to a trainer of Atropos, or with it. ``held``: held by a trainer of the native API.
``returned``: waits to be handed out again. ``quarantined``: not handed out any more, because its leases ran out too
often.
"""

LEASE_STATES: tuple[LeaseState, ...] = get_args(LeaseState)

LeaseOutcome = Literal["acknowledged", "given_back"]
"""How a trainer ends the lease of a batch or of a sample."""

LeaseAnswer = Literal[LeaseOutcome, "held"]
"""What an ack, a nack or an extension made of a lease."""

BlockedOn = Literal["samples", "inserts", "chunks"]
"""What blocks a side of a replay buffer: the other side's samples or inserts, or chunks to sample from."""

Missing = Literal["no_items", "in_flight", "not_drawn"]
"""Why a sample of a curriculum has fewer items than requested: what is true of all other items."""

ChunkSorting = Literal["order", "weights", "versions", "uses"]
"""The sorted sets of sampleable chunks: in the order of insertion, by weight, by policy version, by uses."""

ChunkPlace = Literal["sampleable", "reserved", "archived"]
"""The places of chunks in a replay buffer."""

CHUNK_PLACES: tuple[ChunkPlace, ...] = get_args(ChunkPlace)
SAMPLEABLE, RESERVED, ARCHIVED = CHUNK_PLACES
