"""Read and change the replay buffer in Redis: its configuration, fragments and chunks."""

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, get_args

from app.core.replay.chunking import WorkerProgress
from app.core.replay.grid import Spot
from app.core.replay.memory import StoreMemory
from app.store.groups.payloads import write_then_index
from app.store.redis.client import RedisClient
from app.store.redis.keys import ReplayKeys, ReplayPart, RunKeys
from app.store.redis.pipeline import Argument, Command
from app.store.redis.scripts import outcome
from app.store.redis.settings_text import settings_text
from app.store.replay import scripts
from app.store.replay.entries import (
    ChunkContents,
    FragmentRecord,
    StoredChunk,
    StoredWorker,
    chunk_contents,
    chunk_key,
    parse_chunk,
    parse_fragment,
    parse_spot,
    parse_worker,
)
from app.store.replay.insertions import Insertion, chunk_values, fragment_values
from app.store.replay.view import (
    ReplaySummary,
    ReplayView,
    candidate_commands,
    no_buffer,
    read_candidates,
    read_summary,
    read_view,
    summary_commands,
    view_commands,
)
from app.store.runs import scripts as run_scripts
from app.store.runs.view import reading
from lachesis.wire.replay import Eviction, ReplaySettings

MOST_WORKERS = 4096
"""Most workers of a buffer, because its state lists all of them; silent workers are forgotten."""


class PriorityChange(NamedTuple):
    """A chunk's new priority, and the weight that it gives.

    Attributes:
        before: The priority that the chunk must have had; None for any.
    """

    chunk_id: int
    priority: float
    weight: int
    before: float | None = None


class ReplayStore:
    """Reads and changes a run's replay buffer."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def view(self, run: str) -> ReplayView | None:
        """Read the buffer without its contents; None if the run has no buffer."""
        found = await self._connection.pipeline(view_commands(RunKeys(run)))
        with reading(run):
            return read_view(found)

    async def existing(self, run: str) -> ReplayView:
        """Read the buffer without its contents.

        Raises:
            ReplayNotFound: The run has no buffer.
        """
        view = await self.view(run)
        if view is None:
            raise no_buffer(run)
        return view

    async def takes_groups(self, run: str) -> bool:
        """Return whether the run has a buffer that takes the groups of acknowledged batches."""
        view = await self.view(run)
        return view is not None and view.settings.groups

    async def summaries(self, runs: Sequence[str]) -> dict[str, ReplaySummary]:
        """Read buffers with the numbers of their contents, in one round trip; runs without a buffer are left out."""
        commands = [summary_commands(RunKeys(run)) for run in runs]
        replies = iter(await self._connection.pipeline(list(chain.from_iterable(commands))))
        summaries = {}
        for run, own in zip(runs, commands, strict=True):
            with reading(run):
                summary = read_summary(list(islice(replies, len(own))))
            if summary is not None:
                summaries[run] = summary
        return summaries

    async def look(
        self, run: str, worker: str, eviction: Eviction, candidates: int
    ) -> tuple[ReplayView, StoredWorker, list[str]] | None:
        """Read the buffer, the record of a worker, and the chunks to evict first, in one round trip.

        Args:
            run: The run's name.
            worker: The worker.
            eviction: The order of eviction.
            candidates: How many chunks to read.

        Returns:
            None if the run has no buffer. Candidates are chunks of former sessions, then the others in the order of
            eviction.
        """
        keys = RunKeys(run)
        commands = [*view_commands(keys), ("HGET", keys.replay_part("workers"), worker)]
        commands += candidate_commands(keys, eviction, candidates)
        replies = await self._connection.pipeline(commands)
        view = read_view(replies[:-4])
        if view is None:
            return None
        text, *found = replies[-4:]
        unknown = StoredWorker("", WorkerProgress(view.context.session, heard_ms=view.context.clock_ms))
        known = unknown if text is None else parse_worker(worker, text.decode())
        return view, known, read_candidates(found, candidates)

    async def candidates(self, run: str, eviction: Eviction, most: int) -> list[str]:
        """Read the chunks to evict first, as `look` does."""
        return read_candidates(await self._connection.pipeline(candidate_commands(RunKeys(run), eviction, most)), most)

    async def put(
        self, run: str, settings: ReplaySettings, session: int, offset: float, revision: str, *, settle: bool
    ) -> bool:
        """Write the configuration and the session.

        Args:
            run: The run's name.
            settings: The configuration.
            session: The training attempt in progress.
            offset: The rate limiter's offset.
            revision: The revision this was decided on; empty for a new buffer.
            settle: Whether all chunks must be checked against the new settings.

        Returns:
            False if the buffer changed, or there is no such run: read it and decide again.
        """
        command = scripts.put_replay(
            RunKeys(run),
            decided_on=revision,
            config=settings_text(settings),
            session=session,
            offset=repr(offset),
            settle=settle,
        )
        return bool(await self._connection.run(command))

    async def settled(self, run: str, revision: str) -> None:
        """Note that all chunks have been checked against the settings of a revision."""
        keys = RunKeys(run)
        command = run_scripts.finish_request(keys, record=keys.replay, field="unsettled", seen=revision)
        await self._connection.run(command)

    async def note_demand(self, run: str, chunks: int, until_ms: int) -> None:
        """Store that a requested sample of this many chunks must wait, and until when that counts."""
        keys = RunKeys(run)
        command = run_scripts.set_run_field(
            keys, record=keys.replay, field="demand", value=f"{chunks} {until_ms}", keep=False
        )
        await self._connection.run(command)

    async def insert(self, run: str, insertion: Insertion, view: ReplayView) -> scripts.InsertOutcome:
        """Carry out an insertion that was planned on ``view``. Once it is, it survives any crash. Safe to repeat.

        Returns:
            ``inserted``; or, with nothing changed, ``full``: the worker is new, and there are `MOST_WORKERS`. Or
            ``outdated``, ``blocked`` (by the rate limiter) or ``crowded`` (more victims are needed): look and plan
            again.

        Raises:
            StoreFull, StoreUnavailable: As for groups.
        """
        keys = RunKeys(run)
        payloads = {one.fragment_id: one.payload for one in insertion.fragments}
        plan = {
            "fragments": [fragment_values(one.fragment_id, len(one.payload), one.rest) for one in insertion.fragments],
            "chunks": [chunk_values(one) for one in insertion.chunks],
            "victims": insertion.victims,
            "freed": insertion.freed,
            "counts": insertion.counts,
        }

        def index(*, is_pending: bool) -> Command:
            return scripts.insert_fragments(
                ReplayKeys(keys),
                payloads=[keys.payload(fragment_id) for fragment_id in payloads],
                worker=insertion.worker,
                seen=insertion.seen,
                new=insertion.text,
                due_ms=insertion.due_ms,
                revision=view.revision,
                policy_version=view.context.version,
                most_inserts=insertion.most_inserts,
                max_chunks=view.settings.max_chunks,
                max_bytes=view.settings.max_bytes,
                most_workers=MOST_WORKERS,
                score_if_absent=-1 if is_pending else 0,
                plan=plan,
            )

        (word,) = await write_then_index(self._connection, keys, payloads, index)
        return outcome(word, get_args(scripts.InsertOutcome))

    async def retire(self, run: str, reason: str, chunk_keys: Sequence[str], seen: ReplayView | None = None) -> int:
        """Retire chunks for a reason, or (``archived``) keep them for inspection; return how many there were.

        Args:
            run: The run's name.
            reason: The reason.
            chunk_keys: The chunks.
            seen: The view that this was decided on. If given, nothing happens when the buffer was changed or restored
                since.
        """
        if not chunk_keys:
            return 0
        command = scripts.retire_chunks(
            ReplayKeys(RunKeys(run)),
            reason=reason,
            revision=None if seen is None else seen.revision,
            chunk_ids=chunk_keys,
        )
        return int(await self._connection.run(command))

    async def memory(self) -> StoreMemory:
        """Read how much memory the server uses, and how much it may use."""
        text = await self._connection.call("INFO", "memory")
        lines = (text if isinstance(text, str) else text.decode()).splitlines()
        facts = dict(line.split(":", 1) for line in lines if ":" in line)
        return StoreMemory(int(facts["used_memory"]), int(facts["maxmemory"]), int(facts["total_system_memory"]))

    async def chunk_bytes(self, runs: Sequence[str]) -> dict[str, int]:
        """Read the bytes of payload that each run's chunks hold; runs without any are left out."""
        commands: list[Command] = [("HGET", RunKeys(run).replay, "chunk_bytes") for run in runs]
        found = await self._connection.pipeline(commands)
        return {run: int(size) for run, size in zip(runs, found, strict=True) if int(size or 0) > 0}

    async def named_elsewhere(self, run: str, fragment_ids: Sequence[str]) -> set[str]:
        """Return which payloads the queue, batches or snapshots of the buffer need, too."""
        keys = RunKeys(run)
        others = [key for key in keys.naming_payloads() if key != keys.replay_part("fragments")]
        commands: list[Command] = [("HMGET", key, *fragment_ids) for key in others]
        found = await self._connection.pipeline(commands) if fragment_ids else []
        pairs = (zip(fragment_ids, entries, strict=True) for entries in found)
        return {fragment_id for pair in pairs for fragment_id, entry in pair if entry is not None}

    async def place(self, run: str, view: ReplayView, chunk_keys: Sequence[str]) -> None:
        """Make chunks sampleable or reserved, depending on the uses that the settings in ``view`` leave open."""
        if chunk_keys:
            command = scripts.place_chunks(
                ReplayKeys(RunKeys(run)),
                revision=view.revision,
                max_reuse=view.settings.max_reuse,
                chunk_ids=chunk_keys,
            )
            await self._connection.run(command)

    async def prioritise(self, run: str, revision: str, changes: Sequence[PriorityChange]) -> list[int] | None:
        """Give chunks other priorities.

        Args:
            run: The run's name.
            revision: The revision whose settings gave the weights.
            changes: The changes.

        Returns:
            The ids of the chunks that exist. None if the settings have changed; then no priority has changed.
        """
        rows = [
            scripts.PriorityRow(chunk_key(chunk_id), repr(priority), weight, "" if before is None else repr(before))
            for chunk_id, priority, weight, before in changes
        ]
        command = scripts.update_priorities(ReplayKeys(RunKeys(run)), revision=revision, priorities=rows)
        known, *there = await self._connection.run(command)
        return [int(key) for key in there[0]] if known else None

    async def ranked(
        self, run: str, part: ReplayPart, first: int, last: int, *, descending: bool = False
    ) -> list[tuple[str, int]]:
        """Read chunks' keys and scores by rank in an index, from 0; ``last`` is included, -1 for the end."""
        order: list[Argument] = ["REV"] if descending else []
        key = RunKeys(run).replay_part(part)
        found = await self._connection.call("ZRANGE", key, first, last, *order, "WITHSCORES")
        return [(key.decode(), int(score)) for key, score in found]

    async def sizes(self, run: str, parts: Sequence[ReplayPart]) -> list[int]:
        """Count the chunks in indexes."""
        return await self._connection.pipeline([("ZCARD", RunKeys(run).replay_part(part)) for part in parts])

    async def spots(self, run: str, ranks: Sequence[int]) -> list[Spot]:
        """Read chunks at ranks in the order of insertion: those that are reserved follow those that may be sampled.

        Chunks that have left in the meantime are missing.
        """
        if not ranks:
            return []
        text = await self._connection.run(scripts.find_spread_chunks(ReplayKeys(RunKeys(run)), ranks=ranks))
        with reading(run):
            return [parse_spot(line) for line in text.decode().splitlines()]

    async def scored(self, run: str, part: ReplayPart, least: int | str, most: int | str, limit: int) -> list[str]:
        """Read the keys of at most ``limit`` members whose scores in an order are from ``least`` to ``most``."""
        key = RunKeys(run).replay_part(part)
        found = await self._connection.call("ZRANGEBYSCORE", key, least, most, "LIMIT", 0, limit)
        return [key.decode() for key in found]

    async def counted(self, run: str, part: ReplayPart, ranges: Sequence[tuple[Argument, Argument]]) -> list[int]:
        """Count the chunks whose scores in an order are in each of some ranges."""
        key = RunKeys(run).replay_part(part)
        return await self._connection.pipeline([("ZCOUNT", key, *bounds) for bounds in ranges])

    async def versions(self, run: str) -> dict[int, int]:
        """Count the sampleable chunks of each version."""
        counts = await self._connection.call("HGETALL", RunKeys(run).replay_part("version_counts"))
        return dict(sorted((int(version), int(count)) for version, count in counts.items()))

    async def entries(self, run: str, chunk_keys: Sequence[str]) -> list[StoredChunk | None]:
        """Read chunks' entries; None where the buffer does not hold one."""
        found = await self._read(run, "chunks", chunk_keys)
        return [text and parse_chunk(key, text.decode()) for key, text in zip(chunk_keys, found, strict=True)]

    async def scan(self, run: str, cursor: int, about: int) -> tuple[int, list[StoredChunk]]:
        """Read about ``about`` chunks in no order. The first and the last cursor are 0."""
        key = RunKeys(run).replay_part("chunks")
        following, found = await self._connection.scan(key, cursor, about)
        return following, [parse_chunk(key.decode(), text.decode()) for key, text in found.items()]

    async def fragments(self, run: str, fragment_ids: Sequence[str]) -> list[FragmentRecord | None]:
        """Read fragments' entries; None where the buffer does not hold one."""
        found = await self._read(run, "fragments", fragment_ids)
        return [text and parse_fragment(one, text.decode()) for one, text in zip(fragment_ids, found, strict=True)]

    async def contents(self, run: str, chunk_keys: Sequence[str]) -> list[ChunkContents | None]:
        """Read chunks' versions, and the ids of their fragments; None where the buffer does not hold one."""
        return [text and chunk_contents(text.decode()) for text in await self._read(run, "chunks", chunk_keys)]

    async def _read(self, run: str, part: ReplayPart, names: Sequence[str]) -> list[Any]:
        """Read some fields of a hash, by the pipeline, because that packs hundreds of words in C."""
        command: Command = ("HMGET", RunKeys(run).replay_part(part), *names)
        return list((await self._connection.pipeline([command]))[0]) if names else []

    async def workers(self, run: str) -> dict[str, StoredWorker]:
        """Read the records of all workers."""
        found = await self._connection.call("HGETALL", RunKeys(run).replay_part("workers"))
        return {name.decode(): parse_worker(name.decode(), text.decode()) for name, text in sorted(found.items())}
