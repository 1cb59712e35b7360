"""A replay buffer over the session's real Redis, the few moves its tests are made of, and its books."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from redis.asyncio import Redis

from app.core.replay.buffer import Versions
from app.services.replay.planning import FragmentResult
from app.services.replay.request import ReplaySample, ReplaySampleRequest
from app.store.groups.garbage import GarbageStore
from app.store.redis.keys import ReplayPart, RunKeys
from app.store.replay.entries import (
    EncodedFragment,
    FragmentRecord,
    StoredChunk,
    StoredWorker,
    parse_chunk,
    parse_fragment,
    parse_worker,
)
from app.store.replay.view import NO_TOTALS
from app.store.runs.lease_codec import parse_lease
from lachesis.wire.replay import MAX_SNAPSHOTS
from lachesis.wire.states import ARCHIVED, RESERVED, SAMPLEABLE
from tests.services.conftest import RUN, Process, config

KEYS = RunKeys(RUN)


def fragment(
    number: int,
    *,
    worker: str = "w",
    session: int = 0,
    version: int = 0,
    priority: float | None = None,
    size: int = 20,
    mark: str = "",
) -> EncodedFragment:
    """A stand-in for tensors: the use cases never look inside."""
    text = f"{worker}/{session}/{number}/{mark}|".encode().ljust(size, b"x")
    return EncodedFragment(worker, session, number, Versions(version, float(version), version), text, priority)


@dataclass(frozen=True, slots=True)
class Buffer:
    """One API process's view of the run's buffer."""

    process: Process
    redis: Redis

    async def put(self, *numbers: int, **fields: Any) -> list[str]:
        """Insert fragments. Return the outcome of each."""
        return [receipt.outcome for receipt in await self.insert(*numbers, **fields)]

    async def insert(self, *numbers: int, **fields: Any) -> list[FragmentResult]:
        """Insert fragments, by number."""
        fragments = [fragment(number, **fields) for number in numbers]
        return await self.process[0].replay.insertion.insert(RUN, fragments)

    async def take(self, chunks: int, **fields: Any) -> ReplaySample:
        """Take a sample that must be there."""
        sample = await self.process[0].replay.samples.take(RUN, ReplaySampleRequest(num_chunks=chunks, **fields))
        assert isinstance(sample, ReplaySample), sample
        return sample

    async def ack(self, sample: ReplaySample) -> None:
        """Acknowledge it."""
        await self.process[0].replay.samples.acknowledge(RUN, sample.lease.batch_id, sample.lease.lease_id)

    async def nack(self, sample: ReplaySample) -> None:
        """Give it back."""
        await self.process[0].replay.samples.give_back(RUN, sample.lease.batch_id, sample.lease.lease_id, None)

    async def configure(self, **changes: Any) -> None:
        """Change the configuration."""
        await self.process[0].replay.buffers.configure(RUN, changes)

    async def set_version(self, version: int) -> None:
        """Note the policy version in force."""
        await self.process[0].runs.administration.set_policy_version(RUN, version)

    async def pass_time(self, ms: int) -> None:
        """Move the run clock on, and look after the run."""
        await self.redis.hincrby(KEYS.run, "clock_ms", ms)  # type: ignore[misc]
        await self.process[1].maintain(RUN)

    async def books(self) -> "Books":
        """Recount the buffer."""
        return await books_of(self.redis, RUN)


async def buffer_of(process: Process, redis: Redis, **settings: Any) -> Buffer:
    """Make a run with a buffer."""
    services, _ = process
    if (await services.runs.atropos.view(RUN)).config is None:
        await services.runs.atropos.register(RUN, config(4))
    await services.replay.buffers.configure(RUN, settings)
    return Buffer(process, redis)


@dataclass(frozen=True, slots=True)
class Books:
    """What is held where, each checked against everything else that says so; and what was, at each snapshot."""

    chunks: dict[str, StoredChunk]
    fragments: dict[str, FragmentRecord]
    workers: dict[str, StoredWorker]
    samples: dict[str, list[str]]
    totals: dict[str, int]
    saved: dict[str, "Books"] = field(default_factory=dict)

    def at(self, place: str) -> list[int]:
        """The numbers of the first fragments of the chunks at a place, oldest chunk first."""
        return [entry.chunk.first for _, entry in sorted(self.chunks.items()) if entry.place == place]

    def total(self, name: str) -> int:
        """What was counted under a name."""
        return self.totals.get(name, 0)

    @property
    def named(self) -> set[str]:
        """The fragments that the buffer or any snapshot names."""
        return self.fragments.keys() | {name for books in self.saved.values() for name in books.fragments}


async def books_of(redis: Redis, run: str) -> Books:
    """Recount a replay buffer from its entries, and check that orders, samples, totals and payloads agree with them.

    The same is true of each of its snapshots.
    """
    keys = RunKeys(run)
    saved = {}
    for slot in range(MAX_SNAPSHOTS):
        name = await redis.hget(keys.snapshot_part(slot, "replay"), "snapshot")  # type: ignore[misc]
        if name is None:
            assert not await redis.exists(*keys.snapshot_place(slot)), "half a snapshot"
        else:
            saved[name.decode()] = await _books_at(redis, partial(keys.snapshot_part, slot))
    buffer = await _books_at(redis, lambda part: keys.replay if part == "replay" else keys.replay_part(part))
    await _check_orders(redis, keys, buffer)
    books = replace(buffer, saved=saved)
    await _check_payloads(redis, keys, books)
    return books


async def _books_at(redis: Redis, key_of: Callable[[Any], str]) -> Books:
    async def texts(part: str) -> dict[str, str]:
        return {name.decode(): text.decode() for name, text in (await redis.hgetall(key_of(part))).items()}

    replay = await texts("replay")
    words = NO_TOTALS | {"snapshot"}
    totals = {name: int(text) for name, text in replay.items() if name not in words}
    chunks = {key: parse_chunk(key, text) for key, text in (await texts("chunks")).items()}
    fragments = {key: parse_fragment(key, text) for key, text in (await texts("fragments")).items()}
    workers = {name: parse_worker(name, text) for name, text in (await texts("workers")).items()}
    manifests = await texts("samples")
    samples = {sample: [entry[0] for entry in json.loads(text)["chunks"]] for sample, text in manifests.items()}
    books = Books(chunks, fragments, workers, samples, totals)

    counts = {int(version): int(count) for version, count in (await texts("version_counts")).items()}
    versions = [entry.chunk.versions.lowest for entry in chunks.values() if entry.place == SAMPLEABLE]
    assert counts == {version: versions.count(version) for version in set(versions)}

    held = [key for keys_of in samples.values() for key in keys_of]
    assert all(len(set(keys_of)) == len(keys_of) for keys_of in samples.values()), "a chunk twice in a sample"
    assert {key: held.count(key) for key in chunks} == {key: entry.chunk.reserved for key, entry in chunks.items()}
    assert set(held) <= chunks.keys(), "a sample has lost a chunk"
    leases = [parse_lease(sample, text) for sample, text in (await texts("sample_states")).items()]
    assert {lease.batch_id for lease in leases} == samples.keys()
    taken_by = {lease.request_id: lease.batch_id for lease in leases if lease.request_id}
    assert await texts("requests") == taken_by, "a request that is not recognised, or one that is recognised forever"
    entering = {name.decode() for name in await redis.zrange(key_of("entering"), 0, -1)}
    assert entering <= {key for key, entry in fragments.items() if entry.chunk_id is None}
    _check_uses(books)
    _check_totals(books, entering)
    _check_fragments(books, entering)
    due = {name.decode() for name in await redis.zrange(key_of("due"), 0, -1)}
    assert due == workers.keys(), "a worker that nobody looks after, or that is gone"
    return books


async def _check_orders(redis: Redis, keys: RunKeys, books: Books) -> None:
    """Chunks are ranked as their entries say; those of a snapshot only while it is restored."""
    chunks = books.chunks

    async def scores(part: ReplayPart) -> dict[str, int]:
        found = await redis.zrange(keys.replay_part(part), 0, -1, withscores=True)
        return {key.decode(): int(score) for key, score in found}

    orders: dict[str, tuple[ReplayPart, ReplayPart, ReplayPart, ReplayPart]] = {
        SAMPLEABLE: ("order", "weights", "versions", "uses"),
        RESERVED: ("reserved_order", "reserved_weights", "reserved", "reserved_uses"),
    }
    for place, (order, weights, versions, uses) in orders.items():
        live = {key: entry for key, entry in chunks.items() if entry.place == place}
        assert await scores(order) == {key: int(key) for key in live}
        assert await scores(weights) == {key: entry.weight for key, entry in live.items()}
        assert await scores(versions) == {key: entry.chunk.versions.lowest for key, entry in live.items()}
        assert await scores(uses) == {key: -entry.chunk.uses for key, entry in live.items()}
    assert await scores("archived") == {key: int(key) for key, entry in chunks.items() if entry.place == ARCHIVED}


def _check_uses(books: Books) -> None:
    places = (SAMPLEABLE, RESERVED, ARCHIVED)
    kept = [entry for entry in books.chunks.values() if entry.place in places]
    live = [entry for entry in kept if entry.place != ARCHIVED]
    retired_in_use = [entry for entry in books.chunks.values() if entry.place not in places]
    assert all(entry.chunk.reserved for entry in retired_in_use), "a chunk that is retired and that nobody holds"
    assert books.total("chunks") == len(kept)
    assert books.total("chunk_bytes") == sum(entry.chunk.payload_bytes for entry in kept)
    assert books.total("chunk_fragments") == sum(entry.chunk.fragments for entry in kept)
    uses = sum(entry.chunk.uses for entry in live) + books.total("retired_uses")
    sampled = sum(map(len, books.samples.values()))
    assert books.total("samples") == uses + sampled, "each sample is a use, or in somebody's hands"
    assert books.total("sampled_chunks") == _sum(books, "staleness:")
    assert books.total("inserts") == len(live) + books.total("retired_chunks")
    assert books.total("retired_chunks") == _sum(books, "retired:")


def _check_totals(books: Books, entering: Collection[str]) -> None:
    parts = [one for worker in books.workers.values() for one in (*worker.state.open_part, *worker.state.waiting)]
    waiting = [*parts, *(books.fragments[group] for group in entering)]
    assert books.total("waiting_fragments") == len(waiting)
    assert books.total("waiting_bytes") == sum(one.payload_bytes for one in waiting)
    weight = books.total("weight") + (books.total("weight_high") << 32)
    assert weight == sum(entry.weight for entry in books.chunks.values() if entry.place == SAMPLEABLE)
    out = books.total("retired_fragments") + _sum(books, "dropped:")
    assert books.total("accepted_fragments") == books.total("chunk_fragments") + len(waiting) + out


def _sum(books: Books, prefix: str) -> int:
    return sum(count for name, count in books.totals.items() if name.startswith(prefix))


def _check_fragments(books: Books, entering: Collection[str]) -> None:
    """Each is in the one place that its entry names."""
    in_chunks = {one: int(key) for key, entry in books.chunks.items() for one in entry.fragment_ids}
    assert len(in_chunks) == sum(len(entry.fragment_ids) for entry in books.chunks.values()), "a fragment in two chunks"
    waiting: dict[str, Any] = {}
    for name, worker in books.workers.items():
        numbers = {one.number: one for one in (*worker.state.open_part, *worker.state.waiting)}
        assert worker.ids.keys() == numbers.keys()
        for number, fragment_id in worker.ids.items():
            waiting[fragment_id] = numbers[number]
            entry = books.fragments[fragment_id]
            assert (entry.worker, entry.session, entry.number) == (name, worker.state.session, number)
            assert (entry.payload_bytes, entry.checksum) == (numbers[number].payload_bytes, numbers[number].checksum)
    for key, entry in books.chunks.items():
        parts = [books.fragments[fragment_id] for fragment_id in entry.fragment_ids]
        assert [part.number for part in parts] == list(range(entry.chunk.first, entry.chunk.first + len(parts)))
        assert {part.chunk_id for part in parts} == {int(key)}
        assert sum(part.payload_bytes for part in parts) == entry.chunk.payload_bytes
        assert min(part.version for part in parts) == entry.chunk.versions.lowest
    assert books.fragments.keys() == in_chunks.keys() | waiting.keys() | set(entering)


async def _check_payloads(redis: Redis, keys: RunKeys, books: Books) -> None:
    """What is named has its payload; any other is garbage that is known of."""
    garbage = {name.decode() for name in await redis.zrange(keys.unreferenced, 0, -1)}
    for token in await redis.smembers(keys.marked_hashes):  # type: ignore[misc]
        garbage |= {name.decode() for name in await redis.hkeys(keys.marked_hash(token.decode()))}  # type: ignore[misc]
    groups = await _needed_by_run(redis, keys)
    payloads = {key.decode().rsplit(":", 1)[1] async for key in redis.scan_iter(keys.payload("*"))}
    assert books.named <= payloads, "a fragment without its payload"
    assert payloads <= books.named | garbage | groups, "a payload that nothing names"


async def _needed_by_run(redis: Redis, keys: RunKeys) -> set[str]:
    """The payloads that the run itself needs: its groups', those that batches replay, and the newest group's."""
    latest = await redis.hget(keys.run, "latest")  # type: ignore[misc]
    own, replayed = await redis.hkeys(keys.groups), await redis.hkeys(keys.replayed)  # type: ignore[misc]
    return {name.decode() for name in (*own, *replayed, *filter(None, [latest]))}


async def swept(buffer: Buffer) -> Books:
    """Sweep the garbage, and recount: payloads are there exactly for what is held."""
    await GarbageStore(buffer.process[0].connection).delete_marked(RUN)
    books = await buffer.books()
    payloads = {key.decode().rsplit(":", 1)[1] async for key in buffer.redis.scan_iter(KEYS.payload("*"))}
    assert payloads == books.named | await _needed_by_run(buffer.redis, KEYS)
    assert not await buffer.redis.exists(KEYS.marked_hashes)
    assert not await buffer.redis.zcount(KEYS.unreferenced, -1, -1)
    return books
