"""The replay buffer as its owners and operators see it: made, changed while it goes on, looked at, emptied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.core.rate_limiter import Blocked, Position
from app.core.replay import ReplayPolicy
from app.store.replay_entries import StoredChunk, StoredFragment

SortedBy = Literal["order", "weights", "versions", "uses"]


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker has sent in its session: fragments, those in no chunk yet, gaps given up; per second lately."""

    worker: str
    session: int
    next_number: int
    accepted_fragments: int
    waiting_fragments: int
    gaps: int
    heard_ago_s: float
    fragments_per_s: float


@dataclass(frozen=True, slots=True)
class ReplayState:
    """What a replay buffer looks like now.

    Attributes:
        policy: Its configuration.
        session: The training attempt in progress.
        policy_version: The policy version in force.
        sampleable_chunks: Chunks that may be sampled now.
        withheld_chunks: Chunks whose uses are all reserved.
        past_chunks: Chunks of former sessions, kept for inspection.
        chunk_bytes: Payload of all of those.
        lingering_chunks: Retired chunks that samples still hold.
        waiting_fragments: Fragments in no chunk yet.
        waiting_bytes: Their payload.
        accepted_fragments: Fragments taken in so far: in chunks, waiting, dropped or retired.
        chunk_fragments: Fragments in chunks that are not retired.
        retired_fragments: Fragments of chunks that were retired.
        dropped: Fragments that were counted and are in no chunk, by reason.
        retired: Chunks retired so far, by reason.
        gaps: Gaps in workers' numbers that were given up.
        versions: Sampleable chunks by version.
        uses: Sampleable chunks by acknowledged uses; those of many uses together under the largest.
        position: Where the rate limiter stands.
        limiter_error: Inserts times samples per insert, less samples, in chunks; None without a limiter.
        inserts_blocked: Why a chunk may not be inserted now, or None.
        samples_blocked: Why a chunk may not be sampled now, or None.
        samples_held: Samples in trainers' hands.
        avg_reuse: Mean uses of retired chunks; None before the first.
        avg_staleness: Mean staleness of the chunks sampled so far, as they were taken; None before the first.
        fragments_per_s: Fragments taken in lately, per second, as this process saw it.
        workers: By name.
    """

    policy: ReplayPolicy
    session: int
    policy_version: int
    sampleable_chunks: int
    withheld_chunks: int
    past_chunks: int
    chunk_bytes: int
    lingering_chunks: int
    waiting_fragments: int
    waiting_bytes: int
    accepted_fragments: int
    chunk_fragments: int
    retired_fragments: int
    dropped: Mapping[str, int]
    retired: Mapping[str, int]
    gaps: int
    versions: Mapping[int, int]
    uses: Mapping[int, int]
    position: Position
    limiter_error: float | None
    inserts_blocked: Blocked | None
    samples_blocked: Blocked | None
    samples_held: int
    avg_reuse: float | None
    avg_staleness: float | None
    fragments_per_s: float
    workers: tuple[WorkerFacts, ...]


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """Some chunks, and how to ask for those after them; None if there are none."""

    chunks: tuple[StoredChunk, ...]
    cursor: str | None


class Replay:
    """What owners of a replay buffer do, and operators look at."""

    async def configure(self, run: str, changes: Mapping[str, Any]) -> ReplayState:
        """Change the buffer while it goes on; make it, with the defaults for the rest, if there is none.

        Args:
            run: The run's name.
            changes: New values by field of `ReplayPolicy`.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: The settings must deadlock, or do not fit together.
        """
        raise NotImplementedError

    async def state(self, run: str) -> ReplayState:
        """Look at the buffer.

        Raises:
            ReplayNotFound: The run has none.
        """
        raise NotImplementedError

    async def set_session(self, run: str, session: int) -> int:
        """Begin a session; returns how many chunks of former ones were retired. Safe to repeat.

        Raises:
            ReplayNotFound: The run has no buffer.
            InvalidField: A later session has begun.
        """
        raise NotImplementedError

    async def update_priorities(self, run: str, priorities: Mapping[int, float]) -> list[int]:
        """Set priorities of chunks, by id; returns the ids that are there.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        raise NotImplementedError

    async def chunks(
        self,
        run: str,
        *,
        limit: int = 100,
        cursor: str | None = None,
        sort: SortedBy = "order",
        descending: bool = False,
        place: str = "sampleable",
        worker: str | None = None,
        session: int | None = None,
        version: int | None = None,
    ) -> ChunkPage:
        """Look at chunks, page by page; a page may be short, even empty, before the last.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        raise NotImplementedError

    async def delete_chunks(
        self, run: str, *, worker: str | None = None, session: int | None = None, version: int | None = None
    ) -> int:
        """Retire the chunks that are of all that is named; returns how many.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        raise NotImplementedError

    async def fragments(self, run: str, fragment_ids: Sequence[str]) -> list[tuple[StoredFragment, bytes]]:
        """Read fragments and their payloads, in the order asked for; their checksums have been verified.

        Raises:
            FragmentNotFound: One of them is not held, or not any more, or is damaged.
        """
        raise NotImplementedError
