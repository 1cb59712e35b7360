"""What owners of a replay buffer do beside filling and sampling it, without an event loop."""

from collections.abc import Iterator

from lachesis._transport.bridge import Portal
from lachesis.replay.upkeep import Place, ReplayUpkeep, SortedBy
from lachesis.wire.replay import Chunk, ReplayState
from lachesis.wire.snapshots import ReplaySnapshot


class SyncReplayUpkeep:
    """Looks at chunks and retires them, takes snapshots and goes back to them, removes the buffer."""

    _async: ReplayUpkeep
    _portal: Portal

    def chunks(
        self,
        sort: SortedBy | None = None,
        descending: bool = False,
        place: Place = "sampleable",
        worker: str | None = None,
        session: int | None = None,
        version: int | None = None,
    ) -> Iterator[Chunk]:
        """Look at chunk after chunk, read page by page; of those that come and go meanwhile, some may be missing.

        Args:
            sort: By order of insertion, weight, version or uses; ``reserved`` ones by version, ``archived`` ones
                by order of insertion. None: that, and of what is sampleable the order of insertion.
            descending: The largest first.
            place: Where they are; ``archived`` are those of former sessions.
            worker, session, version: Only those of it.

        Raises:
            ReplayNotFound: The run has no buffer.
            InvalidField: What is there cannot be sorted so.
        """
        found = self._async.chunks(sort, descending, place, worker, session, version)
        return self._portal.each(found, lambda chunk: chunk)

    def delete_chunks(
        self,
        worker: str | None = None,
        session: int | None = None,
        version: int | None = None,
        below_version: int | None = None,
    ) -> int:
        """Retire the chunks that are of all that is named, or, if nothing is, all of them; returns how many.

        Args:
            worker, session, version: Only those of it.
            below_version: Only those of policy versions below this.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        return self._portal.run(self._async.delete_chunks(worker, session, version, below_version))

    def snapshot(self, name: str | None = None) -> ReplaySnapshot:
        """Note the buffer as it is now, to go back to it; the oldest snapshot goes where there are as many as may be.

        Args:
            name: What to call it; one of this name is replaced. None: a name never used before.

        Raises:
            InvalidField: The name has characters that do not belong there.
            ReplayNotFound: The run has no buffer.
        """
        return self._portal.run(self._async.snapshot(name))

    def snapshots(self) -> list[ReplaySnapshot]:
        """Return the snapshots there are, oldest first. `ReplayNotFound`: the run has no buffer."""
        return self._portal.run(self._async.snapshots())

    def restore(self, name: str) -> ReplayState:
        """Make the buffer what it was at the snapshot of this ``name``, settings included; returns its state.

        Then chunks are retired that are too stale for the policy version in force. Samples in hand have ended.

        Raises:
            SnapshotNotFound, ReplayNotFound: There is none of this name; the run has no buffer.
        """
        return self._portal.run(self._async.restore(name))

    def delete_snapshot(self, name: str) -> None:
        """Let the snapshot of this ``name`` go.

        Raises:
            SnapshotNotFound, ReplayNotFound: There is none of this name; the run has no buffer.
        """
        self._portal.run(self._async.delete_snapshot(name))

    def delete(self) -> None:
        """Remove the buffer with all it holds, its settings and snapshots; the run goes on.

        Raises:
            ReplayNotFound: The run has none.
        """
        self._portal.run(self._async.delete())
