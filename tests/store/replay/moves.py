"""The few moves that tests of the replay store are made of."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.core.batches.leases import Lease
from app.core.replay.sampling import ChunkDraw, ChunkTotals
from app.services.replay.planning import FragmentResult, plan_insertion
from app.store.replay.entries import EncodedFragment
from app.store.replay.insertions import Insertion
from app.store.replay.samples import DrawnOn, Limits, Missed, SampleManifest, SampleStore
from app.store.replay.snapshots import SnapshotRecord, SnapshotStore
from app.store.replay.store import ReplayStore
from app.store.replay.view import ReplayView
from lachesis.wire.replay import ReplaySettings, Sampling
from tests.services.replay.moves import Books, books_of
from tests.store.conftest import RUN, Store


@dataclass(frozen=True, slots=True)
class ReplayMoves:
    """The replay buffer of the store's run."""

    store: Store
    replay: ReplayStore
    samples: SampleStore
    snapshots: SnapshotStore

    async def view(self) -> ReplayView:
        """Read the buffer, which must be there."""
        view = await self.replay.view(RUN)
        assert view is not None
        return view

    async def plan(self, *fragments: EncodedFragment) -> tuple[Insertion, list[FragmentResult], ReplayView]:
        """Plan to insert fragments of one worker, which must change something."""
        found = await self.replay.look(RUN, fragments[0].worker, (await self.view()).settings.eviction, 8)
        assert found is not None
        view, known, victims = found
        insertion, receipts = plan_insertion(view, fragments[0].worker, known, fragments, victims, new_id)
        assert insertion is not None
        return insertion, receipts, view

    async def insert(self, *fragments: EncodedFragment) -> list[FragmentResult]:
        """Insert fragments of one worker."""
        insertion, receipts, view = await self.plan(*fragments)
        assert await self.replay.insert(RUN, insertion, view) == "inserted"
        return receipts

    async def take(self, *ranks: int, sample_id: str = "sample", **fields: Any) -> SampleManifest | Missed:
        """Take the chunks at some ranks, oldest first, into a sample."""
        view = fields.pop("view", None) or await self.view()
        held = replace(lease(sample_id), request_id=fields.pop("request_id", ""))
        limits = Limits(**{"oldest_version": 0, "oldest_ms": 0, "most_samples": None} | fields)
        draws = [ChunkDraw("order", 0, 2**53, rank) for rank in ranks]
        drawn_on = DrawnOn(Sampling(), ChunkTotals(view.size))
        counter = view.total("draws") + 1
        return await self.samples.take(RUN, held, len(ranks), view, drawn_on, draws, counter, limits)

    async def end(self, outcome: str, sample_id: str = "sample") -> bool:
        """End a sample."""
        return await self.samples.end(RUN, lease(sample_id), outcome, await self.view())

    async def snapshot(self, name: str, slot: int = 0, gone: Sequence[int] = ()) -> SnapshotRecord:
        """Take a snapshot."""
        taken = await self.snapshots.take(RUN, name, await self.view(), slot, gone)
        assert taken is not None
        return taken

    async def books(self) -> Books:
        """Recount the buffer."""
        return await books_of(self.store.redis, RUN)


def lease(sample_id: str) -> Lease:
    """A lease of a sample, the same each time."""
    return Lease(sample_id, "held", "host/1/x", 1, 0, relaxed=False, lease_id="lease")


def new_id() -> str:
    """Make an id never used before."""
    return uuid.uuid4().hex


def keys_of(manifest: SampleManifest | Missed) -> Sequence[str]:
    """The keys of a sample's chunks, in order."""
    assert isinstance(manifest, SampleManifest), manifest
    return [drawn.key for drawn in manifest.chunks]


def moves_on(store: Store) -> ReplayMoves:
    """The moves on a buffer that the store's run has."""
    connection = store.connection
    return ReplayMoves(store, ReplayStore(connection), SampleStore(connection), SnapshotStore(connection))


async def replay_moves(store: Store, **settings: Any) -> ReplayMoves:
    """Give the store's run a buffer."""
    moves = moves_on(store)
    assert await moves.replay.put(RUN, ReplaySettings(**settings), 0, 0.0, "", settle=False)
    return moves
