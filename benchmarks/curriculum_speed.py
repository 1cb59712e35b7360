"""How fast items of a curriculum are registered, observed and sampled, of few items and of many, and what they take."""

import json
from collections.abc import Callable, Iterable, Sequence

import httpx

from benchmarks import native
from benchmarks.arena import Arena
from benchmarks.contestants import Lachesis
from benchmarks.load import closed_loop
from benchmarks.native import RUN
from benchmarks.results import Results, Table

CURRICULUM = f"{RUN}/curricula/bench"
REGISTERED_AT_ONCE, OBSERVED_AT_ONCE, SAMPLED_AT_ONCE = 250_000, 1000, 1000
GROUP = 8
CONNECTIONS = 4
PREPARED = 50
STEP_BETWEEN = 7_919  # prime: requests come to items here and there

SPEED = Table(
    key="curriculum_speed",
    title="Items of a curriculum",
    unit="items/s",
    more_is_better=True,
    versus=(),
    note=f"`POST {RUN}/curricula/bench/items`, {REGISTERED_AT_ONCE:,} keys a request, over one connection; "
    f"`…/observations`, {OBSERVED_AT_ONCE} groups of {GROUP} rewards a request; `…/samples`, {SAMPLED_AT_ONCE} items "
    f"a request, over {CONNECTIONS}. All of it is on disk when it is answered.",
)
MEMORY = Table(
    key="curriculum_memory",
    title="What an item of a curriculum takes in Redis",
    unit="bytes",
    more_is_better=False,
    versus=(),
    note="Keys of 19 characters, no metadata; with a history of one score, of the 50 that are kept 4 bytes each.",
)


async def measure(arena: Arena, results: Results) -> None:
    """Register items, observe all of them, and sample by each strategy."""
    lachesis = arena.lachesis
    for depth in arena.effort.depths[1:]:
        native.fresh(lachesis, 1)
        put(lachesis, strategy="uniform", total_steps=100)
        empty = used_bytes(lachesis)
        await register(lachesis, results, depth)
        results.add(MEMORY, f"of {depth:,}, not yet seen", lachesis.name, (used_bytes(lachesis) - empty) / depth)
        observe_all(lachesis, depth)
        results.add(MEMORY, f"of {depth:,}, seen", lachesis.name, (used_bytes(lachesis) - empty) / depth)
        requests = [observations(depth, n) for n in range(PREPARED)]
        for _ in range(arena.effort.rounds):
            load = await closed_loop(lachesis.dial, in_turns(requests), CONNECTIONS, arena.effort.seconds)
            results.add(SPEED, f"{depth:,} items: observe", lachesis.name, load.per_s * OBSERVED_AT_ONCE)
        for strategy in ("uniform", "learnability", "plr", "bandit", "thompson"):
            put(lachesis, strategy=strategy, in_flight_ttl_s=0.0)  # else the last of few items are soon handed out
            requests = [native.post_json(f"{CURRICULUM}/samples", {"n": SAMPLED_AT_ONCE, "step": 50})]
            load = await closed_loop(lachesis.dial, in_turns(requests), CONNECTIONS, arena.effort.seconds)
            results.add(SPEED, f"{depth:,} items: sample, {strategy}", lachesis.name, load.per_s * SAMPLED_AT_ONCE)
    native.fresh(lachesis, 1)


async def register(lachesis: Lachesis, results: Results, depth: int) -> None:
    """Register so many items, and take down how fast that goes."""
    for first in range(0, depth, REGISTERED_AT_ONCE):
        keys = [key(n) for n in range(first, min(depth, first + REGISTERED_AT_ONCE))]
        reply = lachesis.call("POST", f"{CURRICULUM}/items", content=json.dumps({"items": keys}))
        assert said(reply)["registered"] == len(keys)
        results.add(SPEED, f"{depth:,} items: register", lachesis.name, len(keys) / reply.elapsed.total_seconds())


def observe_all(lachesis: Lachesis, depth: int) -> None:
    """Observe each item once."""
    for first in range(0, depth, 10 * OBSERVED_AT_ONCE):
        told = observed(range(first, min(depth, first + 10 * OBSERVED_AT_ONCE)))
        said(lachesis.call("POST", f"{CURRICULUM}/observations", content=told))


def in_turns(requests: Sequence[bytes]) -> Callable[[int], bytes]:
    """Send prepared requests one after the other, over and over."""
    return lambda n: requests[n % len(requests)]


def observations(depth: int, n: int) -> bytes:
    """Write a request that observes items here and there."""
    first = n * OBSERVED_AT_ONCE
    return native.post_json(
        f"{CURRICULUM}/observations",
        json.loads(observed((first + place) * STEP_BETWEEN % depth for place in range(OBSERVED_AT_ONCE))),
    )


def observed(numbers: Iterable[int]) -> bytes:
    """Write observations of items, each with other rewards."""
    told = [{"item": key(n), "rewards": [float((n * 31 + m * 17) % 5 < n % 5) for m in range(GROUP)]} for n in numbers]
    return json.dumps({"observations": told}).encode()


def put(lachesis: Lachesis, **settings: object) -> None:
    """Make the curriculum, or set it otherwise."""
    method = "PATCH" if lachesis.call("GET", CURRICULUM).is_success else "PUT"
    said(lachesis.call(method, CURRICULUM, json=settings))


def used_bytes(lachesis: Lachesis) -> int:
    """Return what Redis has in use."""
    return int(lachesis.redis().info("memory")["used_memory"])


def key(n: int) -> str:
    """Name an item."""
    return f"gsm8k/train/{n:07d}"


def said(reply: httpx.Response) -> dict[str, int]:
    """Return what a reply says, which must be good."""
    found: dict[str, int] = reply.raise_for_status().json()
    return found
