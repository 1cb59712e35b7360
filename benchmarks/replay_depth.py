"""What many chunks cost: a sample's latency, filling, memory, and looking all of them over."""

import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from benchmarks import native
from benchmarks.arena import Arena
from benchmarks.contestants import Lachesis
from benchmarks.native import RUN
from benchmarks.native_depth import settled
from benchmarks.replay_calls import FRAME_FRAGMENTS, SAMPLED, chunks, fill, fresh, take
from benchmarks.replay_others import RedisAlone, Reverb, reverb
from benchmarks.results import Results, Table
from lachesis.wire.replay import SamplingStrategy

PAYLOAD_BYTES = 64
TAKEN = 15
MEASURED_CHUNKS = 10_000
LOOKED_OVER = 100_000

LATENCY = Table(
    key="replay_latency",
    title="A sample out of ever more chunks",
    unit="ms",
    more_is_better=False,
    versus=("dm-reverb",),
    note=f"{SAMPLED} chunks: `POST {RUN}/replay/samples` until the last byte of records and payloads, medians of "
    f"{TAKEN}. Payloads of {PAYLOAD_BYTES} B, so that it is the buffer that is measured, not the transport. Reverb: "
    "`Client.sample`, which opens a stream for each, where its datasets prefetch; redis alone: MGET of random names.",
)
FILLING = Table(
    key="replay_filling",
    title="Filling a replay buffer",
    unit="chunks/s",
    more_is_better=True,
    versus=("dm-reverb", "redis alone"),
    note=f"On the way to those numbers of chunks, {FRAME_FRAGMENTS:,} at once, from one connection or client.",
)
MEMORY = Table(
    key="replay_memory",
    title="Memory of a chunk beside its payload",
    unit="bytes",
    more_is_better=False,
    versus=("dm-reverb", "redis alone"),
    note=f"Growth over {MEASURED_CHUNKS:,} chunks without the blobs of their fragments: `used_memory` of this "
    "service's Redis and of Redis alone. For Reverb it is the resident memory of the server, without the items' bytes.",
)
SETTLING = Table(
    key="replay_settling",
    title="Changes that concern all chunks",
    unit="s",
    more_is_better=False,
    versus=(),
    note="Time until they are answered. Another `alpha` weighs each chunk again; a new session sets each aside. "
    "Samples and inserts run between slices of some hundred chunks.",
)


async def measure(arena: Arena, results: Results) -> None:
    """Deepen the buffer step by step; then the rest."""
    lachesis = arena.lachesis
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="lachesis-bench-")))
        other, said = stack.enter_context(reverb(arena.effort, folder, (PAYLOAD_BYTES,)))
        await remember(arena, results, other, said)
        await deepen(arena, results, said)
        deepen_alone(arena, results)
        if other is not None:
            deepen_reverb(arena, results, other)
        await look_over(lachesis, results, min(LOOKED_OVER, arena.effort.depths[-1]))
    native.fresh(lachesis, 1)


async def deepen(arena: Arena, results: Results, said: str) -> None:
    """Take samples from ever more chunks."""
    lachesis, there = arena.lachesis, 0
    strategies = list(get_args(SamplingStrategy)) if arena.effort.thorough else ["uniform", "proportional"]
    fresh(lachesis)
    for depth in arena.effort.depths:
        began = time.perf_counter()
        await fill(lachesis, PAYLOAD_BYTES, depth, first=there)
        per_s = (depth - there) / (time.perf_counter() - began)
        results.add(FILLING.saying(said), f"to {depth:,}", lachesis.name, per_s)
        there = depth
        assert chunks(lachesis) == depth
        await settled(lachesis)
        caller = await lachesis.dial()
        for strategy in strategies:
            for _ in range(TAKEN):
                began = time.perf_counter()
                taken = await take(caller, strategy, binary=True)
                took_ms = (time.perf_counter() - began) * 1000
                results.add(LATENCY.saying(said), f"{depth:,} chunks, {strategy}", lachesis.name, took_ms)
                ended = native.post_json(f"{RUN}/replay/samples/{taken['sample']}/nack", {"lease": taken["lease"]})
                assert (await caller.call(ended)).status == 200
        caller.close()


def deepen_alone(arena: Arena, results: Results) -> None:
    """Return the same of Redis alone, whose samples are uniform."""
    alone, there = RedisAlone(arena.redis, PAYLOAD_BYTES), 0
    for depth in arena.effort.depths:
        case = f"to {depth:,}"
        results.add(results.tables[FILLING.key], case, alone.name, alone.insert(FRAME_FRAGMENTS, 0, depth - there))
        there = alone.size()
        for _ in range(TAKEN):
            began = time.perf_counter()
            alone.sample()
            took_ms = (time.perf_counter() - began) * 1000
            results.add(results.tables[LATENCY.key], f"{depth:,} chunks, uniform", alone.name, took_ms)


def deepen_reverb(arena: Arena, results: Results, other: Reverb) -> None:
    """Return the same of Reverb, a table for each strategy."""
    for strategy in ("uniform", "proportional"):
        table = f"{strategy}-{PAYLOAD_BYTES}"
        other.call("empty", table)
        for depth in arena.effort.depths:
            per_s = other.call("insert", table, FRAME_FRAGMENTS, 0, depth - other.call("size", table))
            if strategy == "uniform":
                results.add(results.tables[FILLING.key], f"to {depth:,}", other.name, per_s)
            for took_ms in other.call("latencies", table, TAKEN):
                results.add(results.tables[LATENCY.key], f"{depth:,} chunks, {strategy}", other.name, took_ms)
        other.call("empty", table)


async def remember(arena: Arena, results: Results, other: Reverb | None, said: str) -> None:
    """See what grows with chunks."""
    lachesis, table = arena.lachesis, MEMORY.saying(said)
    redis = lachesis.redis()
    for count in (1, 2, 4, 8) if arena.effort.thorough else (1, 2):
        fresh(lachesis, count)
        case = f"{count} fragment{'s' * (count > 1)} a chunk"
        warm = FRAME_FRAGMENTS * count  # what a first request makes grow is not the chunks' doing
        await fill(lachesis, PAYLOAD_BYTES, warm)
        before = _unpaid(lachesis, redis.info("memory")["used_memory"])
        await fill(lachesis, PAYLOAD_BYTES, warm + MEASURED_CHUNKS * count, first=warm)
        after = _unpaid(lachesis, redis.info("memory")["used_memory"])
        results.add(table, case, lachesis.name, (after - before) / MEASURED_CHUNKS)
    redis.close()
    alone = RedisAlone(arena.redis, PAYLOAD_BYTES)
    alone.insert(FRAME_FRAGMENTS, 0, FRAME_FRAGMENTS)
    used = int(arena.redis.client.info("memory")["used_memory"])
    alone.insert(FRAME_FRAGMENTS, 0, MEASURED_CHUNKS)
    grown = int(arena.redis.client.info("memory")["used_memory"]) - used
    results.add(table, "1 fragment a chunk", alone.name, grown / MEASURED_CHUNKS - PAYLOAD_BYTES)
    if other is not None:
        name = f"uniform-{PAYLOAD_BYTES}"
        other.call("insert", name, FRAME_FRAGMENTS, 0, FRAME_FRAGMENTS)
        used = other.resident_bytes()
        other.call("insert", name, FRAME_FRAGMENTS, 0, MEASURED_CHUNKS)
        grown = other.resident_bytes() - used
        results.add(table, "1 fragment a chunk", other.name, grown / MEASURED_CHUNKS - PAYLOAD_BYTES)


async def look_over(lachesis: Lachesis, results: Results, depth: int) -> None:
    """Make changes that concern all chunks."""
    fresh(lachesis)
    await fill(lachesis, PAYLOAD_BYTES, depth)
    await settled(lachesis)
    changes = {
        "another alpha": ("PATCH", f"{RUN}/replay", {"sampling": {"alpha": 0.9}}),
        "a new session": ("PUT", f"{RUN}/replay/session", {"session": 1}),
    }
    for what, (method, path, body) in changes.items():
        began = time.perf_counter()
        lachesis.call(method, path, json=body).raise_for_status()
        results.add(SETTLING, f"{depth:,} chunks, {what}", lachesis.name, time.perf_counter() - began)
    assert chunks(lachesis) == 0


def _unpaid(lachesis: Lachesis, used_bytes: int) -> int:
    """Return used memory without what chunks are for."""
    state = lachesis.call("GET", f"{RUN}/replay").raise_for_status().json()
    return used_bytes - int(state["chunk_bytes"])
