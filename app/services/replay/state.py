"""Describe the state of a replay buffer for its owners and operators."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.replay.chunking import resume_number
from app.core.replay.rate_limiter import LimiterBlock, LimiterState, error, may_insert, may_sample
from app.store.replay.entries import StoredWorker
from app.store.replay.store import ReplayStore
from app.store.replay.view import ReplaySummary, ReplayView
from lachesis.wire.replay import ReplaySettings

_MOST_USES = 64  # bars of the histogram of uses


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The fragments of a worker in its session: how many, how many wait for a chunk, abandoned gaps, recent rate."""

    worker: str
    session: int
    next_number: int
    resume_number: int
    accepted_fragments: int
    waiting_fragments: int
    gaps: int
    heard_age_s: float
    fragments_per_s: float


@dataclass(frozen=True, slots=True)
class BufferState:
    """The present state of a replay buffer.

    Attributes:
        settings: Its configuration.
        session: The training attempt in progress.
        policy_version: The current policy version.
        sampleable_chunks: Chunks that may be sampled now.
        reserved_chunks: Chunks whose uses are all reserved.
        archived_chunks: Chunks of former sessions, kept for inspection.
        chunk_bytes: Payload of the sampleable, reserved and archived chunks.
        retired_in_use_chunks: Retired chunks that samples still hold.
        waiting_fragments: Fragments in no chunk yet.
        waiting_bytes: Their payload.
        accepted_fragments: Fragments accepted so far: in chunks, waiting, dropped or retired.
        chunk_fragments: Fragments in chunks that are not retired.
        retired_fragments: Fragments of chunks that were retired.
        dropped: Fragments that were accepted and dropped without a chunk, by reason.
        refused: Fragments that were not accepted, by reason. Their senders may send them again.
        retired: Chunks retired so far, by reason.
        gaps: Abandoned gaps in workers' numbers.
        versions: Sampleable chunks by version.
        uses: Sampleable chunks by acknowledged uses. The largest key counts all chunks with at least so many uses.
        position: The position of the rate limiter.
        limiter_error: Inserts times samples per insert, minus samples, in chunks; None without a limiter.
        inserts_blocked: Why a chunk may not be inserted now, or None.
        samples_blocked: Why a chunk may not be sampled now, or None.
        samples_held: Samples that trainers hold, and batches with replayed groups.
        avg_reuse: Mean uses of retired chunks; None before the first.
        avg_staleness: Mean staleness of the chunks sampled so far, when they were taken; None before the first.
        fragments_per_s: Recent rate of accepted fragments, per second.
        workers: The workers by name.
    """

    settings: ReplaySettings
    session: int
    policy_version: int
    sampleable_chunks: int
    reserved_chunks: int
    archived_chunks: int
    chunk_bytes: int
    retired_in_use_chunks: int
    waiting_fragments: int
    waiting_bytes: int
    accepted_fragments: int
    chunk_fragments: int
    retired_fragments: int
    dropped: Mapping[str, int]
    refused: Mapping[str, int]
    retired: Mapping[str, int]
    gaps: int
    versions: Mapping[int, int]
    uses: Mapping[int, int]
    position: LimiterState
    limiter_error: float | None
    inserts_blocked: LimiterBlock | None
    samples_blocked: LimiterBlock | None
    samples_held: int
    avg_reuse: float | None
    avg_staleness: float | None
    fragments_per_s: float
    workers: tuple[WorkerStatus, ...]

    @property
    def filled_share(self) -> float:
        """The chunks in it as a part of the most that it may have."""
        return (self.sampleable_chunks + self.reserved_chunks + self.archived_chunks) / self.settings.max_chunks


async def read_state(replay: ReplayStore, run: str, summary: ReplaySummary) -> BufferState:
    """Read the state of a buffer. It is not one snapshot: changes in the meantime may be included in part."""
    view = summary.view
    settings, position, clock_ms = view.settings, view.position, view.context.clock_ms
    facts = tuple(_facts(name, worker, clock_ms) for name, worker in (await replay.workers(run)).items())
    return BufferState(
        settings=settings,
        session=view.context.session,
        policy_version=view.context.version,
        sampleable_chunks=view.size,
        reserved_chunks=summary.reserved,
        archived_chunks=summary.archived,
        chunk_bytes=view.total("chunk_bytes"),
        retired_in_use_chunks=summary.retired_in_use,
        waiting_fragments=view.total("waiting_fragments"),
        waiting_bytes=view.total("waiting_bytes"),
        accepted_fragments=view.total("accepted_fragments"),
        chunk_fragments=view.total("chunk_fragments"),
        retired_fragments=view.total("retired_fragments"),
        dropped=view.named("dropped:"),
        refused=view.named("refused:"),
        retired=view.named("retired:"),
        gaps=view.total("gaps"),
        versions=dict(sorted((await replay.versions(run)).items())),
        uses=await _uses(replay, run, settings),
        position=position,
        limiter_error=None if settings.limiter is None else error(position, settings.limiter),
        inserts_blocked=may_insert(1, position, settings.limiter, settings.min_size_to_sample),
        samples_blocked=may_sample(1, position, settings.limiter, settings.min_size_to_sample),
        samples_held=summary.samples,
        avg_reuse=_mean(view, "retired_uses", "retired_chunks"),
        avg_staleness=_mean(view, "sampled_staleness", "sampled_chunks"),
        fragments_per_s=sum(worker.fragments_per_s for worker in facts),
        workers=facts,
    )


def _mean(view: ReplayView, total: str, count: str) -> float | None:
    return view.total(total) / view.total(count) if view.total(count) else None


async def _uses(replay: ReplayStore, run: str, settings: ReplaySettings) -> dict[int, int]:
    most = min(_MOST_USES, settings.max_reuse or _MOST_USES)
    ranges: list[tuple[int | str, int | str]] = [(-uses, -uses) for uses in range(most)]
    counts = await replay.counted(run, "uses", [*ranges, ("-inf", -most)])
    return {uses: count for uses, count in enumerate(counts) if count}


def _facts(name: str, worker: StoredWorker, clock_ms: int) -> WorkerStatus:
    state = worker.state
    return WorkerStatus(
        worker=name,
        session=state.session,
        next_number=state.next_number,
        resume_number=resume_number(state),
        accepted_fragments=worker.accepted,
        waiting_fragments=len(state.open_part) + len(state.waiting),
        gaps=worker.gaps,
        heard_age_s=max(0, clock_ms - state.heard_ms) / 1000,
        fragments_per_s=worker.rate.per_s(clock_ms),
    )
