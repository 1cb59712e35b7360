"""Take, list, restore and delete snapshots of the replay buffer, and delete the buffer with all of them."""

from app.core.replay.buffer import place_snapshot
from app.events import ReplayDeleted, ReplaySnapshotDeleted, ReplaySnapshotRestored, emit
from app.services.replay.cleanup import ReplayCleanup
from app.store.redis.compare_and_swap import Attempts
from app.store.replay.snapshots import SnapshotRecord, SnapshotStore
from app.store.replay.view import ReplayView, no_buffer
from app.store.runs.store import RunStore
from lachesis.wire.errors import InvalidField, SnapshotNotFound
from lachesis.wire.replay import MAX_SNAPSHOTS


class ReplaySnapshots:
    """Snapshots, which a trainer takes and restores together with its own state."""

    def __init__(self, runs: RunStore, snapshots: SnapshotStore, cleanup: ReplayCleanup) -> None:
        self._runs = runs
        self._snapshots = snapshots
        self._cleanup = cleanup

    async def all(self, run: str) -> tuple[list[SnapshotRecord], int]:
        """Return the snapshots, oldest first, and the run clock in milliseconds.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        view, there = await self._look(run)
        return there, view.context.clock_ms

    async def take(self, run: str, name: str) -> SnapshotRecord:
        """Take a snapshot. It replaces one of the same name, or the oldest if the buffer has the largest number.

        Raises:
            ReplayNotFound: The run has no buffer.
            StoreFull: There is no room for it. The other snapshots are still there.
        """
        attempts = Attempts("take a snapshot", run)
        while attempts.again():
            view, there = await self._look(run)
            names = {one.slot: one.name for one in there}
            slot, gone = place_snapshot(name, names, view.settings.keep_snapshots, MAX_SNAPSHOTS)
            taken = await self._snapshots.take(run, name, view, slot, gone)
            if taken is not None:
                return taken

    async def restore(self, run: str, name: str) -> None:
        """Replace the buffer and its configuration by a snapshot, and retire the chunks that are ineligible now.

        Samples that were held when it was taken count as given back. Samples that are held now have ended.

        Raises:
            ReplayNotFound: The run has no buffer.
            SnapshotNotFound: The buffer has no snapshot of this name.
            InvalidField: The snapshot is without groups, and the run fills batches up with them.
            StoreFull: There is no room for a second copy. Nothing was changed.
        """
        attempts = Attempts("restore a snapshot", run)
        while attempts.again():
            view, there = await self._look(run)
            snapshot = _of(there, name, run)
            _check_groups(snapshot, (await self._runs.queue(run)).policy.fresh_fraction)
            # No sorted set says which chunks contain fragments of later versions than the current one.
            settle = not snapshot.settled or view.context.version < snapshot.policy_version
            ready = await self._snapshots.prepare(run, snapshot)
            if ready and await self._snapshots.restore(run, snapshot, view, settle=settle):
                break
        emit(ReplaySnapshotRestored(run=run, snapshot=name))
        await self._cleanup.sweep(run)

    async def drop(self, run: str, name: str) -> None:
        """Delete a snapshot.

        Raises:
            ReplayNotFound: The run has no buffer.
            SnapshotNotFound: The buffer has no snapshot of this name.
        """
        _, there = await self._look(run)
        await self._snapshots.drop(run, _of(there, name, run))
        emit(ReplaySnapshotDeleted(run=run, snapshot=name))

    async def delete_buffer(self, run: str) -> None:
        """Delete the buffer with its contents and snapshots. The run continues.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        attempts = Attempts("delete the replay buffer", run)
        while attempts.again():
            view, _ = await self._look(run)
            if await self._snapshots.delete_buffer(run, view):
                emit(ReplayDeleted(run=run))
                return

    async def _look(self, run: str) -> tuple[ReplayView, list[SnapshotRecord]]:
        found = await self._snapshots.look(run)
        if found is None:
            raise no_buffer(run)
        return found


def _of(there: list[SnapshotRecord], name: str, run: str) -> SnapshotRecord:
    for snapshot in there:
        if snapshot.name == name:
            return snapshot
    raise SnapshotNotFound(f"the replay buffer of run {run} has no snapshot {name}")


def _check_groups(snapshot: SnapshotRecord, fresh_fraction: float) -> None:
    if fresh_fraction < 1 and not snapshot.settings.groups:
        needed = f"`fresh_fraction` of the run is {fresh_fraction}, so batches need groups of the buffer"
        raise InvalidField(f"was taken without groups, but {needed}: set `fresh_fraction` to 1 first", ("name",))
