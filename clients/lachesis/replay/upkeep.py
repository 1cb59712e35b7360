"""What owners of a replay buffer do beside filling and sampling it, for asyncio."""

import uuid
from collections.abc import AsyncGenerator
from typing import Literal

from lachesis._transport.bodies import checked
from lachesis._transport.http import Sender
from lachesis._transport.replay_calls import ReplayCalls
from lachesis.wire.replay import Chunk, ReplayState
from lachesis.wire.snapshots import ReplaySnapshot, RestoreSnapshot, TakeSnapshot

SortedBy = Literal["order", "weights", "versions", "uses"]
Place = Literal["sampleable", "reserved", "archived"]


class ReplayUpkeep:
    """Looks at chunks and retires them, takes snapshots and goes back to them, removes the buffer."""

    _calls: ReplayCalls
    _sender: Sender

    async def chunks(
        self,
        sort: SortedBy | None = None,
        descending: bool = False,
        place: Place = "sampleable",
        worker: str | None = None,
        session: int | None = None,
        version: int | None = None,
    ) -> AsyncGenerator[Chunk, None]:
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
        said = {"descending": str(descending).lower(), "place": place}
        said |= _named(sort=sort, worker=worker, session=session, version=version)
        cursor: dict[str, str] | None = {}
        while cursor is not None:
            page = await self._sender.send(self._calls.chunks(said | cursor))
            for chunk in page.chunks:
                yield chunk
            cursor = None if page.cursor is None else {"cursor": page.cursor}

    async def delete_chunks(
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
        said = _named(worker=worker, session=session, version=version, below_version=below_version)
        return (await self._sender.send(self._calls.delete_chunks(said))).retired_chunks

    async def snapshot(self, name: str | None = None) -> ReplaySnapshot:
        """Note the buffer as it is now, to go back to it; the oldest snapshot goes where there are as many as may be.

        Args:
            name: What to call it; one of this name is replaced. None: a name never used before.

        Raises:
            InvalidField: The name has characters that do not belong there.
            ReplayNotFound: The run has no buffer.
        """
        body = checked(TakeSnapshot, name=name or uuid.uuid4().hex)  # repeated, it must not be a second one
        return await self._sender.send(self._calls.snapshot(body))

    async def snapshots(self) -> list[ReplaySnapshot]:
        """Return the snapshots there are, oldest first. `ReplayNotFound`: the run has no buffer."""
        return (await self._sender.send(self._calls.snapshots())).snapshots

    async def restore(self, name: str) -> ReplayState:
        """Make the buffer what it was at the snapshot of this ``name``, settings included; returns its state.

        Then chunks are retired that are too stale for the policy version in force. Samples in hand have ended.

        Raises:
            SnapshotNotFound, ReplayNotFound: There is none of this name; the run has no buffer.
        """
        return await self._sender.send(self._calls.restore(checked(RestoreSnapshot, name=name)))

    async def delete_snapshot(self, name: str) -> None:
        """Let the snapshot of this ``name`` go.

        Raises:
            SnapshotNotFound, ReplayNotFound: There is none of this name; the run has no buffer.
        """
        await self._sender.send(self._calls.delete_snapshot(checked(RestoreSnapshot, name=name).name))

    async def delete(self) -> None:
        """Remove the buffer with all it holds, its settings and snapshots; the run goes on.

        Raises:
            ReplayNotFound: The run has none.
        """
        await self._sender.send(self._calls.delete())


def _named(**values: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}
