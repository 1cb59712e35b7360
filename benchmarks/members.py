"""``python -m benchmarks.members``: many workers of one run at their real rhythm, on a part of the machine.

Each member sends a heartbeat every 15 s. If it runs no group, it asks to start one; it submits a group a minute.
A trainer takes batches as fast as they form, and sets a policy version after each. Requests are sent when they are due,
whether earlier ones were answered or not, and their time counts from then. Members expire after 30 s of silence: who is
missing in the end expired falsely.
"""

import argparse
import asyncio
import heapq
import itertools
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import uvloop

from benchmarks import machine, native
from benchmarks.bodies import Shape
from benchmarks.growth.server import Server, Tree, Versions, quantile
from benchmarks.load import RequestFailed
from benchmarks.native import RUN
from lachesis.wire.groups import SAFETENSORS
from tests.e2e.venv import REPOSITORY

FULL_SCALE = 100_000
ENVIRONMENTS = 100
HEARTBEAT_S = 15.0
GROUP_S = 60.0
TTL_S = 30
SHAPE = Shape(4, 64)
BATCH_GROUPS = 1024

_LOOK_S = 0.002
_SLOTS = {"LACHESIS_ENVIRONMENT_TTL_S": str(TTL_S)}


@dataclass
class Rhythm:
    """What the members did: seconds from when a request was due until its answer came."""

    heartbeats_s: list[float] = field(default_factory=list)
    groups_s: list[float] = field(default_factory=list)
    granted: int = 0
    batches: int = 0
    refused: int = 0
    ended: bool = False

    def forget(self) -> None:
        """Start from zero."""
        self.heartbeats_s.clear()
        self.groups_s.clear()
        self.granted = self.batches = 0


@dataclass(frozen=True, slots=True, order=True)
class Due:
    """A request that a member sends at a time of this process's clock, seconds."""

    at_s: float
    member: int
    is_group: bool


class Members:
    """All members of the run, each with a rhythm of its own."""

    def __init__(self, server: Server, members: int, seed: int = 0) -> None:
        self._server = server
        self._numbers = itertools.count()
        self._columns = native.made_up(SHAPE)
        self._random = random.Random(seed)
        self._running = [0] * members
        self._due: list[Due] = []
        self.rhythm = Rhythm()

    async def join(self) -> None:
        """Let one member join each environment, and write the others as if they had: nobody waits for joins here."""
        members = len(self._running)
        for number in range(min(ENVIRONMENTS, members)):
            body = {"name": f"env{number}", "member": f"m{number}", "group_size": SHAPE.sequences}
            await self._server.call(native.post_json(f"{RUN}/environments", body))
        store = self._server.redis
        (records,) = store.scan_iter("*{bench}:members", count=10_000)
        prefix = records.decode().removesuffix("members")
        joined = store.hget(records, "0:m0")
        names = [f"{number % ENVIRONMENTS}:m{number}" for number in range(members)]
        with store.pipeline() as all_at_once:
            for number in range(ENVIRONMENTS, members):
                all_at_once.hset(records, names[number], joined)
                all_at_once.hincrby(f"{prefix}member_counts", str(number % ENVIRONMENTS), 1)
            all_at_once.execute()
        now_ms = float(store.hget(f"{prefix}run", "clock_ms") or 0)
        store.zadd(f"{prefix}members_heard", dict.fromkeys(names, now_ms))
        now_s = time.perf_counter()
        for number in range(members):
            heapq.heappush(self._due, Due(now_s + self._random.uniform(0, HEARTBEAT_S), number, False))
            heapq.heappush(self._due, Due(now_s + self._random.uniform(0, GROUP_S), number, True))

    async def live(self) -> None:
        """Send what is due, until the end."""
        async with asyncio.TaskGroup() as sent:
            while not self.rhythm.ended:
                while self._due and self._due[0].at_s <= time.perf_counter():
                    due = heapq.heappop(self._due)
                    later_s = due.at_s + (GROUP_S if due.is_group else HEARTBEAT_S)
                    heapq.heappush(self._due, Due(later_s, due.member, due.is_group))
                    sent.create_task(self._submit(due) if due.is_group else self._beat(due))
                await asyncio.sleep(_LOOK_S)

    async def _beat(self, due: Due) -> None:
        beat = {
            "member": f"m{due.member}",
            "running_groups": self._running[due.member],
            "start_groups": int(not self._running[due.member]),
        }
        path = f"{RUN}/environments/{due.member % ENVIRONMENTS}/heartbeat"
        try:
            reply = await self._server.call(native.post_json(path, beat))
        except RequestFailed:
            self.rhythm.refused += 1
            return
        granted = json.loads(reply.body)["granted_groups"]
        self._running[due.member] += granted
        self.rhythm.granted += granted
        self.rhythm.heartbeats_s.append(time.perf_counter() - due.at_s)

    async def _submit(self, due: Due) -> None:
        if not self._running[due.member]:
            return  # it may start none
        columns = self._columns[due.member % len(self._columns)]
        blob = native.blob(columns, f"{next(self._numbers):032x}", environment=str(due.member % ENVIRONMENTS))
        await self._server.call(native.http_post(f"{RUN}/groups", len(blob), SAFETENSORS) + bytes(blob))
        self._running[due.member] -= 1
        self.rhythm.groups_s.append(time.perf_counter() - due.at_s)


class Training(Protocol):
    """A load that a trainer belongs to: whether it has ended, and how many batches the trainer had."""

    ended: bool
    batches: int


async def train(server: Server, load: Training, *, sets_versions: bool = False) -> None:
    """Take batches and acknowledge them, until the end."""
    versions = itertools.count(1)
    while not load.ended:
        reply = await server.call(native.take_batch(binary=True, wait_s=1))
        if reply.status == 201:
            await server.call(native.acknowledge(reply))
            load.batches += 1
            if sets_versions:
                version = {"policy_version": next(versions)}
                await server.call(native.post_json(f"{RUN}/policy-version", version).replace(b"POST", b"PUT", 1))


async def measure(server: Server, members: int, seconds: float) -> dict[str, float]:
    """Simulate the members for some seconds, after as long as a heartbeat takes to come around."""
    # Each member may run a group: the groups of all of them are in so many batches.
    allowed = -(-members // BATCH_GROUPS)
    batch_size = BATCH_GROUPS * SHAPE.sequences
    server.fresh("bench", batch_size=batch_size, keep_batches=0, max_staleness=allowed)
    everybody = Members(server, members)
    training = train(server, everybody.rhythm, sets_versions=True)
    tasks = [asyncio.create_task(everybody.live()), asyncio.create_task(training)]
    await everybody.join()
    await asyncio.sleep(2 * HEARTBEAT_S)
    rhythm = everybody.rhythm
    rhythm.forget()
    before, own_s, began_s = server.cpu_s(), time.process_time(), time.perf_counter()
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    elapsed_s, own_s, after = time.perf_counter() - began_s, time.process_time() - own_s, server.cpu_s()
    rhythm.ended = True
    await asyncio.gather(*tasks)
    scale = FULL_SCALE / members
    environments = server.made("GET", f"{RUN}/environments")["environments"]
    return {
        "members": members,
        "heartbeats a second": len(rhythm.heartbeats_s) / elapsed_s,
        "groups a second": len(rhythm.groups_s) / elapsed_s,
        "batches": rhythm.batches,
        "heartbeat p50, ms": 1000 * quantile(rhythm.heartbeats_s, 0.5),
        "heartbeat p99, ms": 1000 * quantile(rhythm.heartbeats_s, 0.99),
        "group p99, ms": 1000 * quantile(rhythm.groups_s or [0.0], 0.99),
        "heartbeats refused": rhythm.refused,
        "falsely expired": members - sum(one["members"] for one in environments),
        "cores of this load": own_s / elapsed_s,
        "API cores": (after[0] - before[0]) / elapsed_s,
        f"API cores at {FULL_SCALE:,} members": scale * (after[0] - before[0]) / elapsed_s,
        f"Valkey cores at {FULL_SCALE:,} members": scale * (after[1] - before[1]) / elapsed_s,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print what came out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.members", description=__doc__)
    parser.add_argument("--members", type=int, default=20_000, help="members (default: a fifth of the full scale)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure")
    parser.add_argument("--processes", type=int, default=1, help="API processes")
    asked = parser.parse_args(arguments)
    machine.prepare()
    with Versions((Tree("here", REPOSITORY),)).running(asked.processes, _SLOTS) as (server,):
        found = uvloop.run(measure(server, asked.members, asked.seconds))
    print(json.dumps(machine.describe()))
    for name, value in found.items():
        print(f"{name:40} {value:12,.2f}")


if __name__ == "__main__":
    main()
