"""Map the state, settings, chunks and snapshots of a replay buffer to the models of replies."""

from collections.abc import Mapping
from dataclasses import asdict

from app.core.replay import rate_limiter
from app.services.replay.buffer import ChunkPage
from app.services.replay.state import BufferState
from app.store.replay import snapshots
from app.store.replay.entries import StoredChunk
from lachesis.wire.replay import (
    Chunk,
    Chunks,
    LimiterBlocked,
    LimiterPosition,
    ReplayState,
    ReplayWorker,
)
from lachesis.wire.snapshots import ReplaySnapshot


def shown_state(state: BufferState) -> ReplayState:
    """Describe a buffer."""
    return ReplayState(
        settings=state.settings,
        session=state.session,
        policy_version=state.policy_version,
        sampleable_chunks=state.sampleable_chunks,
        reserved_chunks=state.reserved_chunks,
        archived_chunks=state.archived_chunks,
        filled_share=state.filled_share,
        chunk_bytes=state.chunk_bytes,
        retired_in_use_chunks=state.retired_in_use_chunks,
        waiting_fragments=state.waiting_fragments,
        waiting_bytes=state.waiting_bytes,
        accepted_fragments=state.accepted_fragments,
        chunk_fragments=state.chunk_fragments,
        retired_fragments=state.retired_fragments,
        dropped_fragments=_named(state.dropped),
        refused_fragments=_named(state.refused),
        retired_chunks=_named(state.retired),
        gaps=state.gaps,
        versions=dict(state.versions),
        uses=dict(state.uses),
        limiter=LimiterPosition(
            inserts=state.position.inserts,
            samples=state.position.samples,
            error=state.limiter_error,
            inserts_blocked=_blocked(state.inserts_blocked),
            samples_blocked=_blocked(state.samples_blocked),
        ),
        samples_held=state.samples_held,
        avg_reuse=state.avg_reuse,
        avg_staleness=state.avg_staleness,
        fragments_per_s=state.fragments_per_s,
        workers=[ReplayWorker(**asdict(worker)) for worker in state.workers],
    )


def shown_chunks(page: ChunkPage) -> Chunks:
    """Describe a page of chunks."""
    return Chunks(chunks=[_chunk(stored, page.groups) for stored in page.chunks], cursor=page.cursor)


def shown_snapshot(snapshot: snapshots.SnapshotRecord, clock_ms: int) -> ReplaySnapshot:
    """Describe a snapshot. ``clock_ms`` is the run clock now."""
    position, limiter = snapshot.position, snapshot.settings.limiter
    return ReplaySnapshot(
        name=snapshot.name,
        taken_age_s=max(0, clock_ms - snapshot.taken_ms) / 1000,
        policy_version=snapshot.policy_version,
        session=snapshot.session,
        chunks=snapshot.chunks,
        chunk_bytes=snapshot.chunk_bytes,
        inserts=position.inserts,
        samples=position.samples,
        limiter_error=None if limiter is None else rate_limiter.error(position, limiter),
    )


def _blocked(blocked: rate_limiter.LimiterBlock | None) -> LimiterBlocked | None:
    if blocked is None:
        return None
    return LimiterBlocked(blocked_on=blocked.blocked_on, missing=blocked.missing, detail=blocked.detail)


def _named(counts: Mapping[str, int]) -> dict[str, int]:
    return {str(name): count for name, count in counts.items()}


def _chunk(stored: StoredChunk, groups: Mapping[str, str]) -> Chunk:
    chunk = stored.chunk
    return Chunk(
        chunk=chunk.chunk_id,
        place=stored.place,
        worker=chunk.worker,
        session=chunk.session,
        first=chunk.first,
        group=groups.get(stored.fragment_ids[0]),
        fragments=list(stored.fragment_ids),
        version=chunk.versions.lowest,
        mean_version=chunk.versions.mean,
        highest_version=chunk.versions.highest,
        payload_bytes=chunk.payload_bytes,
        priority=chunk.priority,
        uses=chunk.uses,
        reserved=chunk.reserved,
    )
