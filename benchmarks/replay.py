"""How fast a replay buffer takes fragments in and hands samples out, beside dm-reverb and Redis alone."""

import json
import time
from contextlib import ExitStack, aclosing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import native
from benchmarks.arena import Arena
from benchmarks.bodies import http_post
from benchmarks.ingest import NEVER_A_BATCH
from benchmarks.load import closed_loop
from benchmarks.native import RUN
from benchmarks.replay_calls import (
    SAMPLED,
    body_of,
    chunks,
    fill,
    fragments_of,
    fresh,
    insertion,
    take,
)
from benchmarks.replay_others import RedisAlone, Reverb, reverb
from benchmarks.results import Results, Table
from lachesis import AsyncReplay
from lachesis.wire.replay import SamplingStrategy

PAYLOAD_BYTES = 100_000
CHUNKS = 1000
WITH_PAYLOADS, RECORDS_ONLY = "with payloads", "records only"
OVER_HTTP = "lachesis, HTTP"

INSERTS = Table(
    key="replay_inserts",
    title="Inserting into a replay buffer",
    unit="fragments/s",
    more_is_better=True,
    versus=("dm-reverb", "redis alone"),
    note=f"Fragments of {PAYLOAD_BYTES // 1000} kB, each a chunk, from one process and by each one's own client. "
    f'That of this service is the SDK\'s worker; "{OVER_HTTP}" writes requests and sends them over one connection. The '
    "bare endpoint is sent the bytes of one request again and again, and stores them unread. Reverb's trajectory "
    "writer waits for its server to confirm each, or each 32. redis-py does SET and RPUSH in a transaction. Reverb "
    "keeps everything in the memory of a C++ process and loses it with that; all others wait for the disk.",
)
SAMPLES = Table(
    key="replay_samples_per_s",
    title="Sampling from a replay buffer, one sample after the other",
    unit="samples/s",
    more_is_better=True,
    versus=("dm-reverb", "redis alone"),
    note=f"{SAMPLED} out of {CHUNKS:,} chunks of {PAYLOAD_BYTES // 1000} kB: {SAMPLED * PAYLOAD_BYTES / 1e6:.1f} MB a "
    "sample. In one process, until they are in one array: the SDK with one sample ahead, each acknowledged. Reverb's "
    "`TrajectoryDataset` has two batches in flight. redis-py does MGET of names drawn by the client, without lease or "
    f'priority. "{OVER_HTTP}": until the last byte, then acknowledged, over one connection. Reverb streams items as it '
    "draws them, with replacement; a sample here is one durable decision, without replacement.",
)


async def measure(arena: Arena, results: Results) -> None:
    """Insert, then sample, in interleaved rounds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="lachesis-bench-")))
        other, said = stack.enter_context(reverb(arena.effort, folder, (PAYLOAD_BYTES,)))
        for count in (1, 32):
            case = f"{count} at once" if count > 1 else "one at a time"
            for _ in range(arena.effort.rounds):
                await insert(arena, results, case, count, said)
                if other is not None:
                    name = f"uniform-{PAYLOAD_BYTES}"
                    other.call("empty", name)
                    per_s = other.call("insert", name, count, arena.effort.seconds, 0)
                    results.add(INSERTS.saying(said), case, other.name, per_s)
        await sample(arena, results, other, said)
        native.fresh(arena.lachesis, 1)


async def insert(arena: Arena, results: Results, case: str, count: int, said: str) -> None:
    """Insert once: by the SDK, over HTTP, into the bare endpoint, and into Redis alone."""
    lachesis, seconds, content = arena.lachesis, arena.effort.seconds, fragments_of(PAYLOAD_BYTES)
    table = INSERTS.saying(said)
    fresh(lachesis)
    steps = {"obs": content.reshape(1, -1).repeat(count, 0)}
    async with (
        AsyncReplay(f"http://127.0.0.1:{lachesis.port}", run="bench") as replay,
        replay.worker("worker", steps=1) as worker,
    ):
        began = time.perf_counter()
        while (elapsed_s := time.perf_counter() - began) < seconds:
            await worker.insert(steps, policy_version=0, priority=1.0)
    results.add(table, case, lachesis.name, chunks(lachesis) / elapsed_s)
    fresh(lachesis)
    load = await closed_loop(lachesis.dial, partial(insertion, content, count), 1, seconds)
    assert chunks(lachesis) == load.calls * count
    results.add(table, case, OVER_HTTP, load.per_s * count)
    to_bare = http_post(f"/pieces/{count}" if count > 1 else "/as-sent", body_of(content, count, 0))
    arena.as_sent.fresh(NEVER_A_BATCH, len(to_bare))
    load = await closed_loop(arena.as_sent.dial, lambda _: to_bare, 1, seconds)
    results.add(table, case, "bare", load.per_s * count)
    alone = RedisAlone(arena.redis, PAYLOAD_BYTES)
    results.add(table, case, alone.name, alone.insert(count, seconds))


async def sample(arena: Arena, results: Results, other: Reverb | None, said: str) -> None:
    """Take sample after sample, from as many chunks everywhere."""
    lachesis, effort, table = arena.lachesis, arena.effort, SAMPLES.saying(said)
    fresh(lachesis)
    await fill(lachesis, PAYLOAD_BYTES, CHUNKS)
    alone = RedisAlone(arena.redis, PAYLOAD_BYTES)
    alone.insert(32, 0, CHUNKS)
    strategies: tuple[SamplingStrategy, ...] = ("uniform", "proportional")
    for strategy in strategies:
        if other is not None:
            other.call("empty", f"{strategy}-{PAYLOAD_BYTES}")
            other.call("insert", f"{strategy}-{PAYLOAD_BYTES}", 32, 0, CHUNKS)
        for _ in range(effort.rounds):
            case = f"{strategy}, {WITH_PAYLOADS}"
            results.add(table, case, lachesis.name, await by_sdk(arena, strategy))
            results.add(table, case, OVER_HTTP, await over_http(arena, strategy, binary=True))
            if other is not None:
                name = f"{strategy}-{PAYLOAD_BYTES}"
                results.add(table, case, other.name, other.call("samples", name, effort.seconds))
            if strategy == "uniform":
                results.add(table, case, alone.name, alone.samples(effort.seconds))
            only = f"{strategy}, {RECORDS_ONLY}"
            results.add(table, only, OVER_HTTP, await over_http(arena, strategy, binary=False))


async def by_sdk(arena: Arena, strategy: SamplingStrategy) -> float:
    """Take samples into arrays for a while; per second."""
    done = 0
    async with (
        AsyncReplay(f"http://127.0.0.1:{arena.lachesis.port}", run="bench") as replay,
        aclosing(replay.samples(num_chunks=SAMPLED, prefetch=1, strategy=strategy)) as samples,
    ):
        await (await anext(samples)).ack()
        began = time.perf_counter()
        while time.perf_counter() - began < arena.effort.seconds:
            each = await anext(samples)
            stacked = each.stacked()
            assert isinstance(stacked, dict)
            assert stacked["obs"].shape[0] == SAMPLED
            await each.ack()
            done += 1
        return done / (time.perf_counter() - began)


async def over_http(arena: Arena, strategy: str, *, binary: bool) -> float:
    """Take samples until their last byte, and acknowledge them, for a while; per second."""
    caller = await arena.lachesis.dial()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < arena.effort.seconds:
        taken = await take(caller, strategy, binary=binary)
        ended = native.post_json(f"{RUN}/replay/samples/{taken['sample']}/ack", {"lease": taken["lease"]})
        assert json.loads((await caller.call(ended)).body)["state"] == "acknowledged"
        done += 1
    caller.close()
    return done / (time.perf_counter() - began)
