"""What much at once costs others: stale groups, a deleted run; and the memory of what waits and of what has left."""

import asyncio
import itertools
import time
from collections.abc import Callable

from benchmarks import native
from benchmarks.bodies import Shape
from benchmarks.growth.effort import Effort
from benchmarks.growth.environments import group_blob
from benchmarks.growth.runs import send_steadily
from benchmarks.growth.server import Server, Versions, cpu_time_s, quantile
from benchmarks.memory import NEVER_A_BATCH
from benchmarks.native import RUN
from benchmarks.results import Results, Table
from lachesis.wire.frame import frame
from lachesis.wire.groups import SAFETENSORS

SENT_AT_ONCE = 500
TAKEN_AT_ONCE = 500  # groups
SIZE = 4  # sequences of a group
BATCH_SIZE = 512  # of the run with stale groups: the service also decides whether it has a batch
LARGE = Shape(8, 2048)
MEGABYTE = 1e6
LOOK_EVERY_S = 0.05

SWEPT = Table(
    "growth_stale",
    "A new policy version makes everything stale",
    "",
    False,
    (),
    "One API process. `reply`: until `PUT …/policy-version` is answered; `sweep`: until nothing stale waits and their "
    "payloads are deleted. V is CPU time for each group. `block` is the longest command that Valkey executed, and "
    "`p99` that of submissions to another run, in a second sweep. All but V is wall time.",
)
DELETED = Table(
    "growth_deleted",
    "A large run is deleted",
    "",
    False,
    (),
    "The append-only file and resident memory of Valkey when the run is there, when `DELETE` is answered, and some "
    "time later. Also how long the next start of the service takes.",
)
MEMORY = Table(
    "growth_memory",
    "Memory of a group in Redis beside its payload",
    "bytes",
    False,
    (),
    "While it is queued, and after it was delivered and acknowledged, when its payload has gone.",
)


async def measure_stale(versions: Versions, effort: Effort, results: Results) -> None:
    """Set a policy version that makes all groups stale."""
    with versions.running() as servers:
        for _ in range(effort.rounds_of_sweeps):
            for server in servers:
                await one_sweep(server, effort, results)


async def one_sweep(server: Server, effort: Effort, results: Results) -> None:
    """Make all groups of a run stale: once alone, and once while others send to another run."""
    case = f"{effort.stale_groups:,} groups"
    store_s = await prepare_sweep(server, effort)
    versions = versions_key(server)
    reply_s, sweep_s = await sweep(server, versions)
    store_s = cpu_time_s(server.store_pid) - store_s
    alone = {"reply, ms": reply_s * 1000, "sweep, s": sweep_s, "V, us a group": store_s * 1e6 / effort.stale_groups}
    await prepare_sweep(server, effort)
    server.redis.config_set("slowlog-log-slower-than", 1000)
    server.redis.config_set("slowlog-max-len", 100_000)
    server.redis.slowlog_reset()
    done = asyncio.Event()
    others = asyncio.create_task(send_until(server, done))
    await sweep(server, versions)
    done.set()
    walls_s = await others
    slowest = max((int(one["duration"]) for one in server.redis.slowlog_get(100_000)), default=0)
    beside = {"block, ms": slowest / 1000, "p99, ms": quantile(walls_s, 0.99) * 1000}
    server.note(results, SWEPT, case, alone | beside)


async def prepare_sweep(server: Server, effort: Effort) -> float:
    """Fill a run; return the CPU time of Valkey so far, seconds."""
    server.fresh("bench", batch_size=BATCH_SIZE, max_staleness=0)
    server.fresh("other", batch_size=NEVER_A_BATCH)
    await fill(server, effort.stale_groups, {"policy_version": "0"})
    await server.settled()
    server.hang_up()
    return cpu_time_s(server.store_pid)


def versions_key(server: Server) -> bytes:
    """Find the key of the groups by version: its prefix differs between versions of the service."""
    (found,) = server.redis.scan_iter("*{bench}:versions", count=100_000)
    return bytes(found)


async def sweep(server: Server, versions: bytes) -> tuple[float, float]:
    """Set the policy version; return how long the reply took, and how long until nothing stale waits, seconds."""
    began = time.perf_counter()
    body = native.post_json(f"{RUN}/policy-version", {"policy_version": 9}).replace(b"POST", b"PUT", 1)
    await server.call(body)
    reply_s = time.perf_counter() - began
    await until(lambda: not server.redis.exists(versions))
    await until(lambda: server.redis.zcard(unreferenced_of(versions)) <= 1)
    return reply_s, time.perf_counter() - began


def unreferenced_of(versions: bytes | str) -> str:
    """Name the key of payloads that are to be deleted."""
    name = versions.decode() if isinstance(versions, bytes) else versions
    return name.removesuffix("versions") + "unreferenced"


async def send_until(server: Server, done: asyncio.Event) -> list[float]:
    """Send groups to another run; return how long each took, seconds."""
    walls_s: list[float] = []
    while not done.is_set():
        walls_s += await send_steadily(server, 0.2, "/v1/runs/other/groups")
    return walls_s


async def fill(server: Server, groups: int, metadata: dict[str, str]) -> None:
    """Queue small groups."""
    numbers = iter(range(groups))
    while some := [*itertools.islice(numbers, SENT_AT_ONCE)]:
        body = frame([group_blob(f"{number:032x}", metadata) for number in some], "groups")
        await server.call(native.http_post(f"{RUN}/groups", len(body), SAFETENSORS) + body)


async def measure_deleted(versions: Versions, effort: Effort, results: Results) -> None:
    """Fill a run with large groups, and delete it."""
    with versions.running(settings={"LACHESIS_REDIS_MAXMEMORY_BYTES": str(effort.deleted_bytes * 3)}) as servers:
        for server in servers:
            case = f"{effort.deleted_bytes / MEGABYTE:,.0f} MB"
            server.fresh("bench", batch_size=NEVER_A_BATCH)
            submissions = native.binary_submissions(LARGE, 1, compact=False)
            for number in range(effort.deleted_bytes // len(submissions[0].body)):
                await server.call(submissions[number % len(submissions)](number))
            await server.settled()
            note_size(server, results, f"{case}: queued")
            server.made("DELETE", RUN)
            note_size(server, results, f"{case}: deleted")
            await asyncio.sleep(effort.later_s)
            note_size(server, results, f"{case}: {effort.later_s:.0f} s later")
            server.hang_up()
            server.service.stop()
            began = time.perf_counter()
            server.service.start()
            server.find_processes()
            seconds = time.perf_counter() - began
            results.add(DELETED, f"{case}: next start", server.column("s"), seconds)


def note_size(server: Server, results: Results, case: str) -> None:
    """Take down how large Valkey and its file are."""
    file_bytes = int(server.redis.info("persistence")["aof_current_size"])
    resident_bytes = int(server.redis.info("memory")["used_memory_rss"])
    server.note(results, DELETED, case, {"AOF, MB": file_bytes / MEGABYTE, "RSS, MB": resident_bytes / MEGABYTE})


async def measure_memory(versions: Versions, effort: Effort, results: Results) -> None:
    """Queue groups, then deliver all of them."""
    with versions.running() as servers:
        for server in servers:
            server.fresh("bench", batch_size=TAKEN_AT_ONCE * SIZE, keep_batches=0)
            before, groups = used_bytes(server), effort.remembered_groups
            await fill(server, groups, {})
            payload = server.made("GET", f"{RUN}/status")["bytes"]["queued"]
            case = f"{groups:,} groups"
            queued = (used_bytes(server) - before - payload) / groups
            results.add(MEMORY, f"{case}: queued", server.column("bytes"), queued)
            for _ in range(groups // TAKEN_AT_ONCE):
                await server.call(native.acknowledge(await server.call(native.take_batch(binary=True))))
            await payloads_gone(server)
            left = (used_bytes(server) - before) / groups
            results.add(MEMORY, f"{case}: after they left", server.column("bytes"), left)


async def payloads_gone(server: Server) -> None:
    """Wait until the payloads of delivered groups are deleted; that of the newest one is kept."""
    await until(lambda: len([*server.redis.scan_iter("*:payload:bench:*", count=100_000)]) <= 1)


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    while True:
        if condition():
            return
        await asyncio.sleep(LOOK_EVERY_S)


def used_bytes(server: Server) -> int:
    """Memory that Valkey has in use."""
    return int(server.redis.info("memory")["used_memory"])
