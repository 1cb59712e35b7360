"""Calls by the number of environments in their run."""

import itertools
import json
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import redis

from benchmarks import native
from benchmarks.bodies import Shape, http_get
from benchmarks.growth.effort import Effort
from benchmarks.growth.server import Call, Meter, Server, Versions
from benchmarks.native import RUN
from benchmarks.results import Results, Table
from lachesis.wire.columns import Ragged, in_full, pack
from lachesis.wire.frame import frame
from lachesis.wire.groups import SAFETENSORS

TINY = Shape(4, 8)
TAKEN = 128  # sequences
GROUPS = TAKEN // TINY.sequences
FEW_LANES = 8
SENT_AT_ONCE = 128
MEMBER = "worker"

TABLE = Table(
    "growth_environments",
    "By environments in the run",
    "ms",
    False,
    (),
    "One call after the other. The run has so many live environments with a member each, also more than the 4,096 that "
    f"the service lets join. A batch has {GROUPS} groups "
    f"of {TINY}. The queue has a group for each environment, or {2 * GROUPS} if that is more. The first submission "
    "after a change of an environment is also what a joining one costs the others.",
)


async def measure(versions: Versions, effort: Effort, results: Results) -> None:
    """Measure each size, all versions in each round."""
    with versions.running() as servers:
        for count in effort.environments:
            for lanes in (min(FEW_LANES, count), count):
                states = [prepare(server, count, lanes) for server in servers]
                for state in states:
                    await state.send(max(count, 2 * GROUPS))
                for _ in range(effort.rounds):
                    for state in states:
                        await measure_batches(state, effort, results)
                        if lanes != count:
                            await measure_calls(state, effort, results)


class State:
    """A run with its environments, of which the first few send groups."""

    def __init__(self, server: Server, environments: int, lanes: int) -> None:
        self.server = server
        self.environments = environments
        self.lanes = lanes
        self._numbers = itertools.count()

    async def send(self, groups: int) -> None:
        """Send groups of the environments that send, in turn."""
        blobs = self._blobs(groups)
        while some := list(itertools.islice(blobs, SENT_AT_ONCE)):
            body = frame(some, "groups")
            await self.server.call(native.http_post(f"{RUN}/groups", len(body), SAFETENSORS) + body)

    def _blobs(self, groups: int) -> Iterator[bytes]:
        for number in itertools.islice(self._numbers, groups):
            yield group_blob(f"{number:032x}", {"environment": str(number % self.lanes)})

    async def send_one(self) -> None:
        """Send a single group."""
        (blob,) = self._blobs(1)
        await self.server.call(native.http_post(f"{RUN}/groups", len(blob), SAFETENSORS) + blob)

    async def take(self) -> None:
        """Take a batch and acknowledge it."""
        reply = await self.server.call(native.take_batch(binary=True))
        await self.server.call(native.acknowledge(reply))


def prepare(server: Server, count: int, lanes: int) -> State:
    """Make a run with so many environments."""
    server.fresh("bench", batch_size=TAKEN, keep_batches=0)
    server.made("POST", f"{RUN}/environments", json={"name": "env", "member": MEMBER, "group_size": TINY.sequences})
    clone_environments(server.redis, count)
    assert len(server.made("GET", f"{RUN}/environments")["environments"]) == count
    return State(server, count, lanes)


def clone_environments(store: redis.Redis, count: int) -> None:
    """Copy the run's first environment and its member: to join costs more the more there are, and no more than 4,096.

    This knows how environments are stored, so it fails for a version that stores them otherwise.
    """
    (found,) = texts(store.scan_iter("*{bench}:environments", count=10_000))
    prefix = found.removesuffix("environments")
    ((_, record),) = hash_of(store, f"{prefix}environments").items()
    ((member, joined),) = hash_of(store, f"{prefix}members").items()
    heard = store.zscore(f"{prefix}members_heard", member)
    assert isinstance(heard, float)
    ids = [str(number) for number in range(1, count)]
    members = [member.replace("0:", f"{number}:", 1) for number in ids]
    with store.pipeline() as all_at_once:
        for number in ids:
            name = f"env{number}"
            copied = json.loads(record) | {"environment": int(number), "name": name, "desired_name": name}
            all_at_once.hset(f"{prefix}environments", number, json.dumps(copied))
        all_at_once.hset(f"{prefix}members", mapping=dict.fromkeys(members, joined))
        all_at_once.zadd(f"{prefix}members_heard", dict.fromkeys(members, heard))
        all_at_once.hset(f"{prefix}member_counts", mapping=dict.fromkeys(ids, 1))
        all_at_once.hset(f"{prefix}run", "next_environment", count)
        all_at_once.hincrby(f"{prefix}run", "epoch", 1)
        all_at_once.execute()


def hash_of(store: redis.Redis, key: str) -> dict[str, str]:
    """Read a hash of texts."""
    found = store.hgetall(key)
    return dict(zip(texts(found), texts(found.values()), strict=True))


def texts(values: Iterable[str | bytes]) -> list[str]:
    """Read texts that Valkey gave."""
    return [value.decode() if isinstance(value, bytes) else value for value in values]


async def measure_calls(state: State, effort: Effort, results: Results) -> None:
    """Measure every call but those of batches once more."""
    server = state.server
    beat = {"member": MEMBER, "running_groups": 0, "start_groups": 0}
    calls: dict[str, Call] = {
        "heartbeat": partial(server.call, native.post_json(f"{RUN}/environments/0/heartbeat", beat)),
        "credits": partial(server.call, http_get(f"{RUN}/environments/0/credits")),
        "/status-env": partial(server.call, http_get("/runs/bench/atropos/status-env?env_id=0")),
        "status": partial(server.call, http_get(f"{RUN}/status")),
        "/metrics": partial(server.call, http_get("/metrics")),
    }
    server.hang_up()
    for what, call in calls.items():
        await call()
        meter = Meter(server)
        await meter.repeat(call, effort.seconds, effort.least_calls)
        server.note(results, TABLE, f"{state.environments:,}: {what}", meter.cost.columns)
    meter = Meter(server)
    for weight in range(effort.least_calls):
        server.made("PATCH", f"{RUN}/environments/0", json={"weight": weight + 1.5})
        await meter.measure(state.send_one)
    server.note(results, TABLE, f"{state.environments:,}: first submission after a change", meter.cost.columns)


async def measure_batches(state: State, effort: Effort, results: Results) -> None:
    """Measure once more what a batch costs while the queue stays as deep."""
    state.server.hang_up()
    await state.take()
    meter = Meter(state.server)
    for _ in range(effort.least_calls):
        await state.send(GROUPS)
        await meter.measure(state.take)
    await state.send(GROUPS)
    lanes = "a lane each" if state.lanes == state.environments else "few lanes"
    case = f"{state.environments:,}: take {TAKEN} + ack, {lanes}"
    state.server.note(results, TABLE, case, meter.cost.columns)


def group_blob(group_id: str, metadata: dict[str, str]) -> bytes:
    """Write a group of one token a sequence or so, in binary."""
    lengths = np.full(TINY.sequences, TINY.tokens, np.int32)
    tokens = np.arange(lengths.sum(), dtype=np.int32)
    columns = {
        "tokens": Ragged(tokens, (lengths,)),
        "masks": Ragged(tokens, (lengths,)),
        "scores": Ragged(np.zeros(TINY.sequences)),
    }
    return bytes(in_full(pack(columns, b"{}", {"id": group_id} | metadata)))  # older versions know no other
