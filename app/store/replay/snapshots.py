"""Snapshots of a replay buffer in Redis: copies of its index, which keep the payloads they name."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.replay.buffer import ReplayPolicy
from app.core.replay.rate_limiter import LimiterState
from app.store.batches.store import SHORTEST_HISTORY_MS
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Argument
from app.store.redis.scripts import positional
from app.store.replay.entries import parse_policy
from app.store.replay.view import ReplayView, read_view, view_commands
from lachesis.wire.replay import MAX_SNAPSHOTS

_AT_ONCE = 300  # chunks; a script ranks them within ten milliseconds


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A replay buffer as it was.

    Attributes:
        name: What it was called.
        slot: Where it is, 0 to `MAX_SNAPSHOTS` - 1.
        revision: What it is known by: the buffer's, which no other snapshot has.
        taken_ms: Run clock when it was taken.
        policy_version: The policy version that was in force.
        policy: The configuration.
        session: The training attempt that was in progress.
        chunks: Chunks that were not retired.
        chunk_bytes: Their payload.
        position: Where the rate limiter stood; its size and demand are not known.
        settled: Whether chunks had been looked over for all changes of the configuration.
    """

    name: str
    slot: int
    revision: str
    taken_ms: int
    policy_version: int
    policy: ReplayPolicy
    session: int
    chunks: int
    chunk_bytes: int
    position: LimiterState
    settled: bool


class SnapshotStore:
    """Copies a run's replay buffer, and puts copies in its place; and removes it with all of them."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def look(self, run: str) -> tuple[ReplayView, list[SnapshotRecord]] | None:
        """Read the buffer and its snapshots, oldest first, in one round trip; None if the run has no buffer."""
        keys = RunKeys(run)
        slots = [("HGETALL", keys.snapshot_part(slot, "replay")) for slot in range(MAX_SNAPSHOTS)]
        replies = await self._connection.pipeline([*slots, *view_commands(keys)])
        view = read_view(replies[MAX_SNAPSHOTS:])
        if view is None:
            return None
        found = [_parse(slot, replies[slot]) for slot in range(MAX_SNAPSHOTS) if replies[slot]]
        return view, sorted(found, key=lambda one: int(one.revision))

    async def take(
        self, run: str, name: str, view: ReplayView, slot: int, gone: Sequence[int]
    ) -> SnapshotRecord | None:
        """Copy the buffer to a slot, and clear other slots. None if the buffer changed: read it and decide again.

        Redis serves no other request during that time.

        Raises:
            StoreFull: There is no room for a copy; nothing has changed.
        """
        keys, standing = RunKeys(run), view.standing
        tokens = [uuid.uuid4().hex for _ in gone]
        places = [*keys.snapshot_place(slot), keys.marked_hash("-")]
        for other, token in zip(gone, tokens, strict=True):
            places += [*keys.snapshot_place(other), keys.marked_hash(token)]
        arguments: list[Argument] = [view.revision, standing.version, name, standing.clock_ms, *tokens]
        found = iter(await self._connection.run(positional("take_snapshot", [*_buffer(keys), *places], arguments)))
        fields = dict(zip(found, found, strict=True))
        return _parse(slot, fields) if fields else None

    async def prepare(self, run: str, snapshot: SnapshotRecord) -> bool:
        """Make a snapshot ready to be restored, in slices; False if it is gone. Safe to repeat, or to leave off.

        Its orders are made from its chunks: a restoration moves them, and would take far longer to copy them.
        """
        keys, cursor = RunKeys(run), None
        while cursor != 0:
            chunks = keys.snapshot_part(snapshot.slot, "chunks")
            cursor, found = await self._connection.scan(chunks, cursor or 0, _AT_ONCE)
            arguments: list[Argument] = [snapshot.revision, *found]
            if not await self._connection.run(
                positional("prepare_snapshot", keys.replay_keys(snapshot.slot), arguments)
            ):
                return False
        return True

    async def restore(self, run: str, snapshot: SnapshotRecord, view: ReplayView, *, settle: bool) -> bool:
        """Replace the buffer by a snapshot. False if the buffer changed, or the snapshot is gone.

        The snapshot must have been prepared since ``view``, because a restoration moves the prepared orders. It ends
        all leased samples. Redis serves no other request during that time.

        Args:
            run: The run's name.
            snapshot: What to restore.
            view: The buffer as it is now.
            settle: Whether chunks must be checked one by one, because some may have to be dropped.

        Raises:
            StoreFull: There is no room for a copy; nothing has changed.
        """
        keys, token = RunKeys(run), uuid.uuid4().hex
        most_uses, memory_ms = snapshot.policy.max_reuse, max(view.memory_ms, SHORTEST_HISTORY_MS)
        arguments: list[Argument] = [token, view.revision, view.standing.version, snapshot.revision]
        arguments += ["" if most_uses is None else most_uses, memory_ms, int(settle)]
        places = [*_buffer(keys), *keys.snapshot_place(snapshot.slot), keys.marked_hash(token)]
        return bool(await self._connection.run(positional("restore_snapshot", places, arguments)))

    async def drop(self, run: str, snapshot: SnapshotRecord) -> bool:
        """Delete a snapshot; False if it is not there any more."""
        keys, token = RunKeys(run), uuid.uuid4().hex
        places = [*_buffer(keys), *keys.snapshot_place(snapshot.slot), keys.marked_hash(token)]
        return bool(await self._connection.run(positional("drop_snapshot", places, [snapshot.revision, token])))

    async def delete_buffer(self, run: str, view: ReplayView) -> bool:
        """Remove the buffer with its snapshots. False if it changed. Payloads are removed in the background."""
        keys = RunKeys(run)
        tokens = [uuid.uuid4().hex for _ in range(1 + MAX_SNAPSHOTS)]
        places = [keys.marked_hash(tokens[0])]
        for slot, token in enumerate(tokens[1:]):
            places += [*keys.snapshot_place(slot), keys.marked_hash(token)]
        arguments: list[Argument] = [view.revision, *tokens]
        return bool(await self._connection.run(positional("delete_replay", [*_buffer(keys), *places], arguments)))


def _buffer(keys: RunKeys) -> list[str]:
    return [*keys.replay_keys(), keys.marked_hashes]


def _parse(slot: int, found: Mapping[bytes, bytes]) -> SnapshotRecord:
    fields = {name.decode(): text.decode() for name, text in found.items()}
    inserts, samples = int(fields.get("inserts", 0)), int(fields.get("samples", 0))
    return SnapshotRecord(
        name=fields["snapshot"],
        slot=slot,
        revision=fields["revision"],
        taken_ms=int(fields["snapshot_ms"]),
        policy_version=int(fields["snapshot_version"]),
        policy=parse_policy(fields["config"]),
        session=int(fields["session"]),
        chunks=int(fields.get("chunks", 0)),
        chunk_bytes=int(fields.get("chunk_bytes", 0)),
        position=LimiterState(inserts, samples, offset=float(fields["offset"])),
        settled="unsettled" not in fields,
    )
