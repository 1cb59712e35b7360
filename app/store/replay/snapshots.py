"""Snapshots of a replay buffer in Redis: copies of its index, which keep the payloads they name."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.replay.rate_limiter import LimiterState
from app.store.redis.client import RedisClient
from app.store.redis.keys import NONE, ReplayKeys, RunKeys
from app.store.replay import scripts
from app.store.replay.entries import parse_replay_settings
from app.store.replay.view import ReplayView, read_view, view_commands
from lachesis.wire.replay import MAX_SNAPSHOTS, ReplaySettings

_AT_ONCE = 300  # chunks; a script ranks them within ten milliseconds


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot of a replay buffer.

    Attributes:
        name: Its name.
        slot: Where it is, 0 to `MAX_SNAPSHOTS` - 1.
        revision: The buffer's revision at that time. No other snapshot has it.
        taken_ms: Run clock when it was taken.
        policy_version: The policy version that was in force.
        settings: The configuration.
        session: The training attempt that was in progress.
        chunks: Chunks that were not retired.
        chunk_bytes: Their payload.
        position: The state of the rate limiter, without size and demand.
        settled: Whether all chunks had been checked after the last change of the settings.
    """

    name: str
    slot: int
    revision: str
    taken_ms: int
    policy_version: int
    settings: ReplaySettings
    session: int
    chunks: int
    chunk_bytes: int
    position: LimiterState
    settled: bool


class SnapshotStore:
    """Takes, restores and deletes snapshots of a run's replay buffer, and deletes the buffer with them."""

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
        keys, context = RunKeys(run), view.context
        tokens = [uuid.uuid4().hex for _ in gone]
        buffer, target = (scripts.place(ReplayKeys(keys, place), NONE) for place in (None, slot))
        dropped = [scripts.place(ReplayKeys(keys, other), token) for other, token in zip(gone, tokens, strict=True)]
        command = scripts.take_snapshot(
            keys,
            places=[buffer, target, *dropped],
            decided_on=view.revision,
            policy_version=context.version,
            name=name,
            clock_ms=context.clock_ms,
            tokens=tokens,
        )
        found = iter(await self._connection.run(command))
        fields = dict(zip(found, found, strict=True))
        return _parse(slot, fields) if fields else None

    async def prepare(self, run: str, snapshot: SnapshotRecord) -> bool:
        """Prepare a snapshot for a restore, in slices; False if it is gone. Safe to repeat, and to stop in between.

        This gives back the samples that were held when it was taken. Then it builds the snapshot's indexes from its
        chunks. A restore moves them, because copying takes far longer.
        """
        keys, cursor = ReplayKeys(RunKeys(run), snapshot.slot), None
        while cursor != 0:
            cursor, found = await self._connection.scan(keys.part("chunks"), cursor or 0, _AT_ONCE)
            command = scripts.prepare_snapshot(
                keys,
                revision=snapshot.revision,
                max_reuse=snapshot.settings.max_reuse,
                chunk_ids=[key.decode() for key in found],
            )
            if not await self._connection.run(command):
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
        keys, token = ReplayKeys(RunKeys(run)), uuid.uuid4().hex
        saved = ReplayKeys(keys.run_keys, snapshot.slot)
        command = scripts.restore_snapshot(
            keys,
            places=[scripts.place(keys, token), scripts.place(saved, NONE)],
            token=token,
            decided_on=view.revision,
            policy_version=view.context.version,
            snapshot_revision=snapshot.revision,
            max_reuse=snapshot.settings.max_reuse,
            memory_ms=view.memory_ms,
            settle=settle,
        )
        return bool(await self._connection.run(command))

    async def drop(self, run: str, snapshot: SnapshotRecord) -> bool:
        """Delete a snapshot; False if it is not there any more."""
        keys, token = RunKeys(run), uuid.uuid4().hex
        place = scripts.place(ReplayKeys(keys, snapshot.slot), token)
        command = scripts.drop_snapshot(keys, places=[place], revision=snapshot.revision, token=token)
        return bool(await self._connection.run(command))

    async def delete_buffer(self, run: str, view: ReplayView) -> bool:
        """Remove the buffer with its snapshots. False if it changed. Payloads are removed in the background."""
        keys = RunKeys(run)
        tokens = {slot: uuid.uuid4().hex for slot in (None, *range(MAX_SNAPSHOTS))}
        command = scripts.delete_replay(
            keys,
            places=[scripts.place(ReplayKeys(keys, slot), token) for slot, token in tokens.items()],
            decided_on=view.revision,
            tokens=list(tokens.values()),
        )
        return bool(await self._connection.run(command))


def _parse(slot: int, found: Mapping[bytes, bytes]) -> SnapshotRecord:
    fields = {name.decode(): text.decode() for name, text in found.items()}
    inserts, samples = int(fields.get("inserts", 0)), int(fields.get("samples", 0))
    return SnapshotRecord(
        name=fields["snapshot"],
        slot=slot,
        revision=fields["revision"],
        taken_ms=int(fields["snapshot_ms"]),
        policy_version=int(fields["snapshot_version"]),
        settings=parse_replay_settings(fields["config"]),
        session=int(fields["session"]),
        chunks=int(fields.get("chunks", 0)),
        chunk_bytes=int(fields.get("chunk_bytes", 0)),
        position=LimiterState(inserts, samples, offset=float(fields["offset"])),
        settled="unsettled" not in fields,
    )
