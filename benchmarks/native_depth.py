"""How long taking and acknowledging a small batch takes while very much is queued."""

import asyncio
import itertools
import time
import uuid

from app.api.codec.group_blob import decode_blobs
from app.main import build_services
from app.settings import ServiceSettings
from app.store.redis.client import RedisClient
from benchmarks import native
from benchmarks.arena import Arena
from benchmarks.bodies import Shape
from benchmarks.contestants import PUT_AT_ONCE, Lachesis
from benchmarks.native import RUN
from benchmarks.results import Results, Table

TINY = Shape(4, 8)
GROUPS = 8
TAKEN = 41

DEPTH = Table(
    "native_depth",
    "Taking and acknowledging a small batch out of a deep queue",
    "ms",
    False,
    (),
    f"{GROUPS} groups of {TINY}: `POST {RUN}/batches` until the last byte, then `POST …/ack` until its answer. Medians "
    f"of {TAKEN} batches, when Redis has rewritten its append-only file after the filling.",
)


async def measure(arena: Arena, results: Results) -> None:
    """Deepen one queue step by step."""
    lachesis = arena.lachesis
    native.fresh(lachesis, GROUPS * TINY.sequences)
    for depth in (depth for depth in arena.effort.depths if depth != 10_000):
        await put(lachesis, depth - native.held(lachesis))
        assert native.held(lachesis) == depth
        await settled(lachesis)
        caller = await lachesis.dial()  # now: filling takes longer than the server keeps an idle connection
        for _ in range(TAKEN):
            began = time.perf_counter()
            reply = await caller.call(native.take_batch(binary=True))
            taken = time.perf_counter()
            assert reply.status == 201, reply.body[:300]
            request = native.acknowledge(reply)
            asked = time.perf_counter()
            assert (await caller.call(request)).status == 200
            done = time.perf_counter()
            case = f"{depth:,} groups queued"
            results.add(DEPTH, f"{case}: take", lachesis.name, (taken - began) * 1000)
            results.add(DEPTH, f"{case}: acknowledge", lachesis.name, (done - asked) * 1000)
            results.add(DEPTH, f"{case}: both", lachesis.name, (taken - began + done - asked) * 1000)
        caller.close()
    native.fresh(lachesis, 1)


async def settled(lachesis: Lachesis) -> None:
    """Wait until Redis has rewritten its append-only file: filling makes it do so, in a process of its own."""
    with lachesis.redis() as redis:
        while True:
            found = redis.info("persistence")
            if not found["aof_rewrite_in_progress"] and not found["aof_rewrite_scheduled"]:
                break
            await asyncio.sleep(0.2)


async def put(lachesis: Lachesis, count: int) -> None:
    """Queue groups through the service's own layers but HTTP: for depths that would take too long otherwise."""
    (group,) = decode_blobs(native.blob(native.made_up(TINY)[0], "one"))
    connection = RedisClient(lachesis.redis_url, 60.0)
    submissions = build_services(ServiceSettings(), connection, "").groups.native
    named = (group._replace(given_id=uuid.uuid4().hex) for _ in range(count))
    while some := list(itertools.islice(named, PUT_AT_ONCE)):
        await submissions.submit(RUN.rpartition("/")[2], some)
    await connection.aclose()
