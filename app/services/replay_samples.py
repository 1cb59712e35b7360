"""Samples in trainers' hands: taken, shown again, acknowledged, given back, held longer."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.core.drawing import Sampling
from app.core.leasing import Lease
from app.core.rate_limiter import Blocked
from app.store.replay_entries import StoredFragment


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """What a trainer asks for.

    Attributes:
        num_chunks: How many chunks; or, instead,
        num_fragments: How many fragments: a multiple of `fragments_per_chunk`.
        sampling: How to draw them: fields of `Sampling` that are to differ from the buffer's.
        request_id: Names the request: repeated, it gets the same sample while that is held.
        lease_s: How long to hold it, seconds; None: as the run says.
        trainer: Who asks, for operators.
    """

    num_chunks: int | None = None
    num_fragments: int | None = None
    sampling: Mapping[str, Any] | None = None
    request_id: str = ""
    lease_s: float | None = None
    trainer: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A fragment of a sample.

    Attributes:
        fragment: Its entry.
        chunk_id: Its chunk.
        version: The chunk's policy version.
        staleness: Versions between that and the one in force when it was taken.
        uses: Acknowledged uses of the chunk when it was taken.
        probability: That one draw from the whole buffer gave this chunk; 1 for fifo and lifo.
        importance: Importance weight, over the largest in the sample.
    """

    fragment: StoredFragment
    chunk_id: int
    version: int
    staleness: int
    uses: int
    probability: float
    importance: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Chunks in a trainer's hands: held under which lease, drawn how, and their fragments in order."""

    lease: Lease
    sampling: Sampling
    policy_version: int
    records: tuple[Record, ...]


class ReplaySamples:
    """The way out."""

    async def take(
        self, run: str, request: SampleRequest, wait_s: float = 0.0, stop: asyncio.Event | None = None
    ) -> Sample | Blocked:
        """Take a sample, waiting for it up to ``wait_s`` seconds. Not to be cancelled: set ``stop`` instead.

        Returns:
            A sample, or what it would have to wait for.

        Raises:
            ReplayNotFound: The run has no replay buffer.
            InvalidField: It asks for no whole chunks, or more than there can ever be.
        """
        raise NotImplementedError

    async def show(self, run: str, sample_id: str) -> Sample:
        """Show a sample that is held again: the same records in the same order.

        Raises:
            SampleNotFound: None of that id is held.
        """
        raise NotImplementedError

    async def held(self, run: str) -> list[Lease]:
        """Return the leases of the samples in trainers' hands."""
        raise NotImplementedError

    async def acknowledge(self, run: str, sample_id: str, lease_id: str) -> None:
        """End a sample that was trained on: its uses count. Safe to repeat.

        Raises:
            SampleNotFound: There is none of that id, or it ended long ago.
            LeaseLost: It is not held under that lease any more; nothing was changed.
        """
        raise NotImplementedError

    async def give_back(self, run: str, sample_id: str, lease_id: str, reason: str | None) -> None:
        """End a sample that was not trained on: its uses do not count. Safe to repeat.

        Raises:
            SampleNotFound, LeaseLost: As for `acknowledge`.
        """
        raise NotImplementedError

    async def extend(self, run: str, sample_id: str, lease_id: str, lease_s: float | None) -> float:
        """Hold a sample longer; returns for how many seconds from now.

        Raises:
            SampleNotFound, LeaseLost: As for `acknowledge`.
        """
        raise NotImplementedError
