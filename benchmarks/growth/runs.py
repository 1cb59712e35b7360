"""What runs cost that are only there, and calls beside them."""

import asyncio
import time
from functools import partial

from benchmarks import native
from benchmarks.bodies import Shape, http_get
from benchmarks.growth.effort import Effort
from benchmarks.growth.server import Call, Meter, Server, Versions, quantile
from benchmarks.memory import NEVER_A_BATCH
from benchmarks.native import RUN
from benchmarks.results import Results, Table

PROCESSES = 2
SETTLED_S = 3.0
CALM_S = 45.0  # after which a run with a lease sleeps
TINY = Shape(4, 8)
SENDERS = 4
SCRAPE_EVERY_S = 1.0

IDLE = Table(
    "growth_idle_runs",
    "Runs in which nothing happens",
    "in each second",
    False,
    (),
    f"{PROCESSES} API processes; no client sends a request. A and V in % of a core; commands that Valkey counts; bytes "
    "by which the append-only file grows.",
)
LISTED = Table(
    "growth_many_runs",
    "Calls beside many runs",
    "ms",
    False,
    (),
    "One call after the other to one API process. `GET /v1/runs` is followed through all of its pages.",
)
SCRAPED = Table(
    "growth_scraped",
    "Submissions beside a scraper",
    "ms",
    False,
    (),
    f"{SENDERS} connections send groups of {TINY}, one each 10 ms, while `/metrics` is read each second, by one "
    "process.",
)


async def measure_idle(versions: Versions, effort: Effort, results: Results) -> None:
    """Let runs be there."""
    with versions.running(PROCESSES) as servers:
        for server in servers:
            fill(server, effort.runs)
        for _ in range(effort.rounds):
            for server in servers:
                await one_idle_round(server, f"{effort.runs:,} runs", effort, results)
        for server in servers:
            abandon(server, effort.runs)
        await asyncio.sleep(CALM_S)
        for _ in range(effort.rounds):
            for server in servers:
                await one_idle_round(server, f"{effort.runs:,} runs with a lease and a buffer", effort, results)


def fill(server: Server, runs: int) -> None:
    """Make runs, beside the one that is measured."""
    server.fresh("bench", batch_size=NEVER_A_BATCH)
    for number in range(runs - 1):
        server.made("POST", "/v1/runs", json={"name": f"idle-{number}", "batch_size": 128})


def abandon(server: Server, runs: int) -> None:
    """Give each run that `fill` made a replay buffer, and a batch whose trainer never ends it."""
    group = {"id": "group", "tokens": [[1]] * 128, "masks": [[1]] * 128, "scores": [0.0] * 128}
    for number in range(runs - 1):
        path = f"/v1/runs/idle-{number}"
        server.made("PUT", f"{path}/replay", json={})
        server.made("POST", f"{path}/groups", json={"groups": [group]})
        server.made("POST", f"{path}/batches", json={"lease_s": 1})


async def one_idle_round(server: Server, case: str, effort: Effort, results: Results) -> None:
    """Do nothing for a while."""
    await asyncio.sleep(SETTLED_S)
    await server.settled()
    before, began = idle_facts(server), time.perf_counter()
    await asyncio.sleep(effort.idle_s)
    after, elapsed_s = idle_facts(server), time.perf_counter() - began
    grown = {name: (after[name] - before[name]) / elapsed_s for name in after}
    server.note(results, IDLE, case, grown)


def idle_facts(server: Server) -> dict[str, float]:
    """Read what grows."""
    counted = server.redis.info("commandstats")
    own = ("cmdstat_info", "cmdstat_config|get")
    commands = sum(int(one["calls"]) for name, one in counted.items() if name not in own)
    written = int(server.redis.info("persistence")["aof_current_size"])
    api_s, store_s = server.cpu_s()
    return {"A, %": api_s * 100, "V, %": store_s * 100, "commands": commands, "AOF bytes": written}


async def measure_listing(versions: Versions, effort: Effort, results: Results) -> None:
    """List many runs, and send groups beside that."""
    with versions.running() as servers:
        for server in servers:
            fill(server, effort.runs)
        for _ in range(effort.rounds):
            for server in servers:
                server.hang_up()
                calls: dict[str, Call] = {
                    "GET /v1/runs": partial(all_pages, server),
                    "/metrics": partial(scrape, server),
                }
                for what, call in calls.items():
                    meter = Meter(server)
                    await meter.repeat(call, effort.seconds, effort.least_calls)
                    server.note(results, LISTED, f"{effort.runs:,} runs: {what}", meter.cost.columns)
                results.add(LISTED, f"{effort.runs:,} runs: /metrics", server.column("bytes"), await scrape(server))
        for _ in range(effort.rounds):
            for server in servers:
                await beside_scraper(server, effort, results)


async def all_pages(server: Server) -> None:
    """Read the list of runs to its end."""
    path = "/v1/runs"
    while True:
        reply = await server.call(http_get(path))
        _, found, rest = reply.body.rpartition(b'"next_after":"')
        if not found:
            return
        after, _, _ = rest.partition(b'"')
        path = f"/v1/runs?after={after.decode()}"


async def scrape(server: Server) -> int:
    """Read the metrics; return how many bytes they have."""
    return len((await server.call(http_get("/metrics"))).body)


async def beside_scraper(server: Server, effort: Effort, results: Results) -> None:
    """Send groups with and without a scraper, and note how long that takes."""
    for case, with_scraper in (("/metrics is not read", False), ("/metrics each second", True)):
        done = asyncio.Event()
        scraper = asyncio.create_task(keep_scraping(server, done)) if with_scraper else None
        walls_s = await send_steadily(server, effort.idle_s)
        done.set()
        if scraper is not None:
            await scraper
        quantiles = {"p50": quantile(walls_s, 0.5) * 1000, "p99": quantile(walls_s, 0.99) * 1000}
        server.note(results, SCRAPED, f"{effort.runs:,} runs, {case}", quantiles)


async def keep_scraping(server: Server, done: asyncio.Event) -> None:
    """Read the metrics each second."""
    while not done.is_set():
        await asyncio.gather(scrape(server), asyncio.sleep(SCRAPE_EVERY_S))


async def send_steadily(server: Server, seconds: float, path: str = f"{RUN}/groups") -> list[float]:
    """Send groups over some connections for a while; return how long each took, seconds."""
    submission = native.binary_submissions(TINY, 1, compact=False)[0]
    began, walls_s = time.perf_counter(), []
    numbers = iter(range(time.time_ns(), time.time_ns() * 2))

    async def keep_sending() -> None:
        while time.perf_counter() - began < seconds:
            sent = time.perf_counter()
            pieces = submission(next(numbers))
            pieces[0] = pieces[0].replace(f"{RUN}/groups".encode(), path.encode())
            await server.call(pieces)
            walls_s.append(time.perf_counter() - sent)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(keep_sending() for _ in range(SENDERS)))
    return walls_s
