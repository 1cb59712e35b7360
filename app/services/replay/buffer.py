"""Create, change, read and empty the replay buffer of a run."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from app.core.replay.checks import check_groups, check_settings
from app.core.replay.memory import default_max_bytes
from app.core.replay.rate_limiter import adjusted
from app.core.replay.sampling import weight_of
from app.events import ReplayChunksDeleted, ReplaySessionStarted, emit, note_settings
from app.services.replay.cleanup import ReplayCleanup
from app.services.replay.groups import GroupInserter
from app.services.replay.insertion import ReplayInsertion
from app.services.replay.reservations import UseReservations
from app.services.replay.samples import ReplaySamples
from app.services.replay.state import BufferState, read_state
from app.store.groups.checksums import damage
from app.store.groups.store import GroupStore
from app.store.redis.compare_and_swap import Attempts
from app.store.redis.keys import ReplayPart
from app.store.replay.entries import GROUP_WORKER, FragmentRecord, StoredChunk, chunk_key
from app.store.replay.store import PriorityChange, ReplayStore
from app.store.replay.view import ReplayView, no_buffer
from app.store.runs.store import RunStore
from lachesis.wire.errors import FragmentNotFound, InvalidField, RunNotFound, StoreFull
from lachesis.wire.replay import ReplaySettings
from lachesis.wire.states import (
    ARCHIVED,
    CHUNK_DROP_REASONS,
    CHUNK_PLACES,
    CHUNK_SORTINGS,
    RESERVED,
    SAMPLEABLE,
    ChunkSorting,
    DropReason,
)

_AT_ONCE = 300  # chunks; a script changes them within ten milliseconds
_MOST_DUE = 10_000  # workers in one pass
_PLACES = (*CHUNK_PLACES, *CHUNK_DROP_REASONS, "deleted")
_ORDERS: Mapping[str, Mapping[ChunkSorting, ReplayPart]] = {
    SAMPLEABLE: {sorting: sorting for sorting in CHUNK_SORTINGS},
    RESERVED: {"versions": "reserved"},
    ARCHIVED: {"order": "archived"},
}
"""For each place the orders of its chunks, each with the sorted set to read them from. The first is the default."""


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """A page of chunks.

    Attributes:
        chunks: The chunks.
        groups: The group of each chunk that was made from one, as its sender named it, by the id of the fragment.
        cursor: Where the next page starts; None if this is the last page.
    """

    chunks: tuple[StoredChunk, ...]
    groups: Mapping[str, str]
    cursor: str | None


class ReplayBuffers:
    """The replay buffers, for their owners and operators."""

    def __init__(
        self,
        runs: RunStore,
        groups: GroupStore,
        replay: ReplayStore,
        insertion: ReplayInsertion,
        group_inserter: GroupInserter,
        reservations: UseReservations,
        samples: ReplaySamples,
        cleanup: ReplayCleanup,
    ) -> None:
        self._runs = runs
        self._groups = groups
        self._replay = replay
        self._insertion = insertion
        self._group_inserter = group_inserter
        self._reservations = reservations
        self._samples = samples
        self._cleanup = cleanup

    async def configure(self, run: str, changes: Mapping[str, Any], *, keep: bool = False) -> BufferState:
        """Change the buffer while it runs, or make it with defaults for all other settings.

        Args:
            run: The run's name.
            changes: New values by field of `ReplaySettings`. ``max_bytes`` None stands for `default_max_bytes`.
            keep: Whether to leave an existing buffer unchanged.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: The settings always deadlock, or do not fit together, or do not fit the run's settings.
        """
        attempts = Attempts("configure the replay buffer", run)
        while attempts.again():
            owner = await self._runs.view(run)
            if owner.config is None:
                raise RunNotFound.named(run)
            view = await self._replay.view(run)
            if view is not None and keep:
                return await self.state(run)
            old = None if view is None else view.settings
            settings = ReplaySettings.model_validate(dict(old or ()) | dict(changes))
            if settings.max_bytes is None:
                settings = settings.model_copy(update={"max_bytes": default_max_bytes(await self._replay.memory())})
            check_settings(settings)
            if old is None or "groups" in changes:
                check_groups(settings, owner.policy.fresh_fraction)
            session = 0 if view is None else view.context.session
            if await self._put(run, view, settings, session):
                note_settings("replay buffer", {"run": run}, old, settings)
                break
        if old is not None and settings.fragments_per_chunk < old.fragments_per_chunk:
            with suppress(StoreFull):  # maintenance cuts off what is complete later
                await self._maintain_workers(run, "+inf")
        await self._cleanup.sweep(run)
        return await self.state(run)

    async def state(self, run: str) -> BufferState:
        """Return the state of the buffer.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        summary = (await self._replay.summaries([run])).get(run)
        if summary is None:
            raise no_buffer(run)
        return await read_state(self._replay, run, summary)

    async def set_session(self, run: str, session: int) -> int:
        """Begin a session; return how many chunks of former sessions were archived. Safe to repeat.

        Raises:
            ReplayNotFound: The run has no buffer.
            InvalidField: A later session has already begun.
        """
        attempts = Attempts("start a replay session", run)
        while attempts.again():
            view = await self._replay.existing(run)
            if session < view.context.session:
                raise InvalidField(f"session {view.context.session} has begun, which is later", ("session",))
            if await self._put(run, view, view.settings, session):
                break
        retired = await self._cleanup.settle(run, await self._replay.existing(run))
        await self._maintain_workers(run, "+inf")
        emit(ReplaySessionStarted(run=run, session=session, retired_chunks=retired))
        return retired

    async def update_priorities(self, run: str, priorities: Mapping[int, float]) -> list[int]:
        """Set priorities of chunks, by id; return the ids that exist.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        attempts = Attempts("update priorities", run)
        while attempts.again():
            view = await self._replay.existing(run)
            alpha = view.settings.sampling.alpha
            changes = [
                PriorityChange(chunk, priority, weight_of(priority, alpha)) for chunk, priority in priorities.items()
            ]
            there: list[int] = []
            for first in range(0, len(changes), _AT_ONCE):
                found = await self._replay.prioritise(run, view.revision, changes[first : first + _AT_ONCE])
                if found is None:
                    break
                there += found
            else:
                return there

    async def chunks(
        self,
        run: str,
        *,
        limit: int = 100,
        cursor: str | None = None,
        sort: ChunkSorting | None = None,
        descending: bool = False,
        place: str = "sampleable",
        worker: str | None = None,
        session: int | None = None,
        version: int | None = None,
    ) -> ChunkPage:
        """Return one page of chunks. A page before the last may be short or empty.

        Raises:
            ReplayNotFound: The run has no buffer.
            InvalidField: There is no such place, or its chunks cannot be sorted this way.
        """
        await self._replay.existing(run)
        part = _order_of(place, sort, descending=descending)
        if part is not None:
            first = int(cursor or 0)
            found = await self._replay.ranked(run, part, first, first + limit - 1, descending=descending)
            entries = await self._replay.entries(run, [key for key, _ in found])
            following = str(first + limit) if len(found) == limit else None
            page = [entry for entry in entries if entry is not None]
        else:
            scanned, page = await self._replay.scan(run, int(cursor or 0), limit)
            following = str(scanned) if scanned else None
        wanted = [entry for entry in page if entry.place == place and _is_of(entry, worker, session, version)]
        return ChunkPage(tuple(wanted), await self._groups_of(run, wanted), following)

    async def _groups_of(self, run: str, chunks: Sequence[StoredChunk]) -> dict[str, str]:
        """Return the ids of the groups that chunks were made from, by the ids of their fragments."""
        of_groups = [entry.fragment_ids[0] for entry in chunks if entry.chunk.worker.startswith(GROUP_WORKER)]
        records = await self._replay.fragments(run, of_groups)
        return {one.fragment_id: json.loads(one.facts).get("group", one.fragment_id) for one in records if one}

    async def delete_chunks(
        self,
        run: str,
        *,
        worker: str | None = None,
        session: int | None = None,
        version: int | None = None,
        below_version: int | None = None,
    ) -> int:
        """Retire the chunks that match all given conditions; return how many.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        await self._replay.existing(run)
        retired, cursor = 0, None
        while cursor != 0:
            cursor, entries = await self._replay.scan(run, cursor or 0, _AT_ONCE)
            doomed = [
                entry
                for entry in entries
                if entry.place in CHUNK_PLACES
                and _is_of(entry, worker, session, version)
                and (below_version is None or entry.chunk.versions.lowest < below_version)
            ]
            retired += await self._replay.retire(run, "deleted", [chunk_key(entry.chunk.chunk_id) for entry in doomed])
        emit(
            ReplayChunksDeleted(
                run=run, chunks=retired, worker=worker, session=session, version=version, below_version=below_version
            )
        )
        return retired

    async def fragments(
        self,
        run: str,
        fragment_ids: Sequence[str],
        admit: Callable[[Sequence[FragmentRecord]], Awaitable[None]] | None = None,
    ) -> list[tuple[FragmentRecord, bytes]]:
        """Return fragments with their payloads, in the given order, after a check of their checksums.

        Args:
            run: The run's name.
            fragment_ids: Their ids. A repeated id is read once.
            admit: Awaited with each fragment once, before payloads are read. An error of it is raised.

        Raises:
            FragmentNotFound: One of them is not in the buffer, or is damaged.
        """
        asked = list(dict.fromkeys(fragment_ids))  # read and hold each only once
        entries = []
        for fragment_id, entry in zip(asked, await self._replay.fragments(run, asked), strict=True):
            if entry is None:
                raise FragmentNotFound(f"run {run} holds no fragment {fragment_id}")
            entries.append(entry)
        if admit is not None:
            await admit(entries)
        payloads = await self.payloads(run, entries)
        found = {entry.fragment_id: (entry, payload) for entry, payload in zip(entries, payloads, strict=True)}
        return [found[fragment_id] for fragment_id in fragment_ids]

    async def payloads(self, run: str, entries: Sequence[FragmentRecord]) -> list[bytes]:
        """Return the payloads of fragments, in order, after a check of their checksums.

        It retires the chunk of a damaged fragment. Otherwise every sample with this chunk would fail.

        Raises:
            FragmentNotFound: One of them is no longer in the buffer, or is damaged.
        """
        found = await self._groups.payloads(run, [entry.fragment_id for entry in entries])
        payloads = []
        for entry, payload in zip(entries, found, strict=True):
            reason = damage(payload, entry.checksum)
            if reason is not None:
                await self._retire_damaged(run, entry, reason)
            if payload is None:
                raise FragmentNotFound(f"run {run} holds no fragment {entry.fragment_id}")
            if reason is not None:
                raise FragmentNotFound(
                    f"fragment {entry.fragment_id} of run {run} is damaged: its checksum is not what it was"
                )
            payloads.append(payload)
        return payloads

    async def _retire_damaged(self, run: str, entry: FragmentRecord, reason: DropReason) -> None:
        """Retire the chunk of a damaged fragment, unless the fragment has left the buffer in the meantime."""
        (now,) = await self._replay.fragments(run, [entry.fragment_id])
        if now is not None and now.chunk_id is not None:
            await self._replay.retire(run, reason, [chunk_key(now.chunk_id)])

    async def maintain(self, run: str) -> None:
        """Do one maintenance pass over a run: everything that is due."""
        view = await self._replay.view(run)
        if view is None:
            return
        await self._samples.end_expired(run, view)
        await self._reservations.settle(run)
        await self._group_inserter.insert(run)
        await self._maintain_workers(run, view.context.clock_ms)
        await self._cleanup.sweep(run)

    async def work_ahead_ms(self, run: str) -> list[int]:
        """Return the run clocks at which `maintain` has something to do, the first among them, if nothing happens.

        Call it after `maintain`.
        """
        view = await self._replay.view(run)
        if view is None:
            return []
        clock_ms = view.context.clock_ms
        return [
            *([] if view.unsettled is None else [clock_ms]),
            *(due_ms for _, due_ms in await self._replay.ranked(run, "due", 0, 0)),
            *await self._samples.deadlines_ahead(run, clock_ms),
            *await self._cleanup.expiries_ms(run, view.settings),
        ]

    async def _maintain_workers(self, run: str, until_ms: int | str) -> None:
        """Handle workers with waiting fragments, and those to forget."""
        for worker in await self._replay.scored(run, "due", "-inf", until_ms, _MOST_DUE):
            await self._insertion.maintain(run, worker)

    async def _put(self, run: str, view: ReplayView | None, settings: ReplaySettings, session: int) -> bool:
        if view is None:
            return await self._replay.put(run, settings, session, 0.0, "", settle=False)
        position = adjusted(view.position, view.settings.limiter, settings.limiter)
        concerned = session != view.context.session or _needs_looking_over(view.settings, settings)
        settle = concerned or view.unsettled is not None
        return await self._replay.put(run, settings, session, position.offset, view.revision, settle=settle)


def _needs_looking_over(old: ReplaySettings, new: ReplaySettings) -> bool:
    """Return whether a change may make any chunk ineligible, or change its weight."""
    return (old.sampling.alpha, old.max_reuse, old.max_bytes) != (new.sampling.alpha, new.max_reuse, new.max_bytes)


def _order_of(place: str, sort: ChunkSorting | None, *, descending: bool) -> ReplayPart | None:
    """Return the sorted set to read the chunks of a place from; None if the place has none."""
    if place not in _PLACES:
        raise InvalidField(f"{place[:32]!r} is none of {', '.join(_PLACES)}", ("query", "place"))
    orders = _ORDERS.get(place, {})
    if sort is not None and sort not in orders:
        raise InvalidField(
            f"chunks that are {place} are sorted by {' or '.join(orders) or 'nothing'}", ("query", "sort")
        )
    if descending and not orders:
        raise InvalidField(f"chunks that are {place} are in no order", ("query", "descending"))
    return next(iter(orders.values()), None) if sort is None else orders[sort]


def _is_of(entry: StoredChunk, worker: str | None, session: int | None, version: int | None) -> bool:
    chunk = entry.chunk
    return (
        worker in (None, chunk.worker) and session in (None, chunk.session) and version in (None, chunk.versions.lowest)
    )
