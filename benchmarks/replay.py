"""How fast the replay buffer takes fragments in, and hands samples out of few chunks and of many."""

import json
import os
import time
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks import native
from benchmarks.arena import Arena
from benchmarks.bodies import http_post
from benchmarks.contestants import Lachesis
from benchmarks.ingest import NEVER_A_BATCH
from benchmarks.load import closed_loop
from benchmarks.native import JSON, RUN
from benchmarks.results import Results, Table
from lachesis.wire import blob
from lachesis.wire.frame import frame
from lachesis.wire.groups import SAFETENSORS

Content = NDArray[np.uint8]

LARGE_BYTES, SMALL_BYTES = 100_000, 64
SAMPLED, TAKEN = 256, 11
AT_ONCE = 1000

INSERTS = Table(
    key="replay_inserts",
    title="Inserting into a replay buffer",
    unit="fragments/s",
    more_is_better=True,
    versus=("bare",),
    note=f"`POST {RUN}/replay/fragments` over one connection, fragments of {LARGE_BYTES // 1000} kB of one worker, "
    "each a chunk. The bare endpoint stores the same bytes unread, one SET a fragment, those of a request in one "
    "transaction.",
)
SAMPLES = Table(
    key="replay_samples",
    title="Sampling from a replay buffer",
    unit="ms",
    more_is_better=False,
    versus=(),
    note=f"{SAMPLED} chunks, drawn uniformly and in proportion to their priorities: `POST {RUN}/replay/samples` until "
    f"the last byte, medians of {TAKEN}. Fragments of {SMALL_BYTES} B, so that it is the buffer that is measured, "
    "not the transport; before that of 100 kB, with their payloads and without.",
)


async def measure(arena: Arena, results: Results) -> None:
    """Insert, then sample out of ever more chunks."""
    lachesis = arena.lachesis
    for count in (1, 32):
        case = f"{count} a request" if count > 1 else "one a request"
        for _ in range(arena.effort.rounds):
            fresh(lachesis)
            fragments = fragments_of(LARGE_BYTES)
            request = partial(inserted, fragments, count)
            load = await closed_loop(lachesis.dial, request, 1, arena.effort.seconds)
            assert chunks(lachesis) == load.calls * count
            results.add(INSERTS, case, lachesis.name, load.per_s * count)
            body = body_of(fragments, count, 0)
            arena.as_sent.fresh(NEVER_A_BATCH, len(body))
            path = f"/pieces/{count}" if count > 1 else "/as-sent"
            to_bare = http_post(path, body)
            load = await closed_loop(arena.as_sent.dial, partial(same, to_bare), 1, arena.effort.seconds)
            results.add(INSERTS, case, "bare", load.per_s * count)
    fresh(lachesis)
    await fill(lachesis, LARGE_BYTES, 1000)
    await sample(lachesis, results, "1,000 chunks of 100 kB, with payloads", "uniform", binary=True)
    await sample(lachesis, results, "1,000 chunks of 100 kB, records only", "uniform", binary=False)
    fresh(lachesis)
    for depth in arena.effort.depths:
        await fill(lachesis, SMALL_BYTES, depth)
        for strategy in ("uniform", "proportional"):
            await sample(lachesis, results, f"{depth:,} chunks, {strategy}", strategy, binary=True)
    native.fresh(lachesis, 1)


async def fill(lachesis: Lachesis, size_bytes: int, depth: int) -> None:
    """Insert until there are so many chunks."""
    caller, fragments = await lachesis.dial(), fragments_of(size_bytes)
    at_once = min(AT_ONCE, 20_000_000 // size_bytes)
    while (there := chunks(lachesis)) < depth:
        for number in range(there, min(depth, there + 50 * at_once), at_once):
            count = min(at_once, depth - number)
            body = framed(fragments, number, count)
            head = native.http_post(f"{RUN}/replay/fragments", len(body), SAFETENSORS)
            reply = await caller.call(head + body)
            assert reply.status == 201, reply.body[:300]
    caller.close()


async def sample(lachesis: Lachesis, results: Results, case: str, strategy: str, *, binary: bool) -> None:
    """Take samples, and give each back."""
    caller = await lachesis.dial()
    body = json.dumps({"num_chunks": SAMPLED, "strategy": strategy}).encode()
    head = native.http_post(f"{RUN}/replay/samples", len(body), JSON, SAFETENSORS if binary else JSON)
    for _ in range(TAKEN):
        began = time.perf_counter()
        reply = await caller.call(head + body)
        results.add(SAMPLES, case, lachesis.name, (time.perf_counter() - began) * 1000)
        assert reply.status == 201, reply.body[:300]
        text = blob.read_header(reply.body).metadata["sample"] if binary else reply.body
        taken = json.loads(text)
        given_back = native.post_json(f"{RUN}/replay/samples/{taken['sample']}/nack", {"lease": taken["lease"]})
        assert (await caller.call(given_back)).status == 200
    caller.close()


def fresh(lachesis: Lachesis) -> None:
    """Begin the run anew, with an empty buffer."""
    native.fresh(lachesis, 1)
    settings = {"fragments_per_chunk": 1, "max_chunks": 2_000_000, "max_bytes": 2**36}
    lachesis.call("PUT", f"{RUN}/replay", json=settings).raise_for_status()


def chunks(lachesis: Lachesis) -> int:
    """Count the chunks in the buffer."""
    return int(lachesis.call("GET", f"{RUN}/replay").raise_for_status().json()["sampleable_chunks"])


def fragments_of(size_bytes: int) -> Content:
    """Make up what each fragment holds."""
    return np.frombuffer(os.urandom(size_bytes), np.uint8)


def framed(content: Content, first: int, count: int) -> bytes:
    """Write some fragments of the worker, from a number on."""
    return frame([one(content, number) for number in range(first, first + count)], "fragments")


def one(content: Content, number: int) -> bytes:
    """Write a fragment."""
    said = {"worker": "worker", "number": str(number), "policy_version": "0", "priority": str(1 + number % 97)}
    return blob.write({"obs": content}, said)


def body_of(content: Content, count: int, n: int) -> bytes:
    """Write the n-th request's body."""
    return one(content, n) if count == 1 else framed(content, n * count, count)


def inserted(content: Content, count: int, n: int) -> bytes:
    """Write the n-th request."""
    body = body_of(content, count, n)
    return native.http_post(f"{RUN}/replay/fragments", len(body), SAFETENSORS) + body


def same(request: bytes, _: int) -> bytes:
    """Give the same request each time."""
    return request
