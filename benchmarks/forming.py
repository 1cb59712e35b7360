"""How long it takes to form a batch while many small groups are queued, with and without minimums."""

import json
import random
import time

from app.api.codec.scored_data import decode_groups
from benchmarks.arena import Arena
from benchmarks.bodies import Shape, group, http_get, http_post
from benchmarks.contestants import AtroposSpeaker
from benchmarks.load import Caller
from benchmarks.results import Results, Table

BATCH_SIZE = 128
TINY = Shape(4, 8)
MINIMUMS = (0.25, 0.25, None)
BATCHES_TAKEN = 11
ATROPOS_DEPTHS = (1_000, 4_000)

FORMING = Table(
    key="forming",
    title="Forming a batch out of a deep queue",
    unit="ms",
    more_is_better=False,
    versus=("atropos",),
    note=f"`GET /batch` of {BATCH_SIZE} sequences in groups of {TINY}, from three environments; with minimums, two of "
    "them are promised a quarter each. This service forms one batch a call (each of the calls counts). Atropos forms "
    "all that it can in the first call (which is the one measured) while every other request waits.",
)


async def measure(arena: Arena, results: Results) -> None:
    """Deepen one queue step by step for this service; fill afresh for Atropos, which empties it."""
    await deepen(arena, results)
    for depth in ATROPOS_DEPTHS:
        for with_minimums in (True, False):
            ids = start_run(arena.atropos, with_minimums)
            caller = await arena.atropos.dial()
            await fill(caller, depth, ids)
            assert arena.atropos.held() == depth
            results.add(FORMING, case(depth, with_minimums), arena.atropos.name, await take(caller))
            caller.close()
    arena.atropos.fresh(BATCH_SIZE, 0)


async def deepen(arena: Arena, results: Results) -> None:
    """Measure this service at each depth, with minimums and without on the same queue."""
    lachesis = arena.lachesis
    ids = start_run(lachesis, with_minimums=True)
    groups = decode_groups(json.dumps(one_of_each(ids)).encode())
    for depth in sorted({*arena.effort.depths, *ATROPOS_DEPTHS}):
        for with_minimums in (True, False):
            await lachesis.put(groups, depth - lachesis.held())
            assert lachesis.held() == depth
            for env_id in ids:
                lachesis.post("/disconnect-env", json={"env_id": env_id})
            assert register(lachesis, with_minimums) == ids  # after they leave and register again
            caller = await lachesis.dial()  # now: filling takes longer than the server keeps an idle connection
            for _ in range(BATCHES_TAKEN):
                results.add(FORMING, case(depth, with_minimums), lachesis.name, await take(caller))
            caller.close()


def case(depth: int, with_minimums: bool) -> str:
    """Name a case."""
    return f"{depth:,} groups queued{', minimums' * with_minimums}"


def start_run(server: AtroposSpeaker, with_minimums: bool) -> list[int]:
    """Begin a run with three environments; gives their ids."""
    server.fresh(BATCH_SIZE, 0)
    assert server.get("/batch").json() == {"batch": None}  # it is the first call of this that starts a run
    return register(server, with_minimums)


def register(server: AtroposSpeaker, with_minimums: bool) -> list[int]:
    """Register the three environments; gives their ids."""
    ids = []
    for i, minimum in enumerate(MINIMUMS):
        declared = {"max_token_length": 64, "desired_name": f"env{i}", "weight": 1.0, "group_size": TINY.sequences}
        promised = {"min_batch_allocation": minimum if with_minimums else None}
        ids.append(int(server.post("/register-env", json=declared | promised).json()["env_id"]))
    return ids


def one_of_each(ids: list[int]) -> list[dict[str, object]]:
    """Make up a group for each environment."""
    rng = random.Random(0)
    return [group(TINY, rng, env_id) for env_id in ids]


async def fill(caller: Caller, groups: int, ids: list[int]) -> None:
    """Send groups of all environments in turn."""
    prepared = [http_post("/scored_data", json.dumps(found).encode()) for found in one_of_each(ids)]
    for n in range(groups):
        reply = await caller.call(prepared[n % len(prepared)])
        assert reply.status == 200, reply.body[:300]


async def take(caller: Caller) -> float:
    """Take one batch; gives the milliseconds until its last byte."""
    began = time.perf_counter()
    reply = await caller.call(http_get("/batch"))
    waited_ms = (time.perf_counter() - began) * 1000
    assert reply.status == 200
    assert sum(len(found["tokens"]) for found in json.loads(reply.body)["batch"]) == BATCH_SIZE
    return waited_ms
