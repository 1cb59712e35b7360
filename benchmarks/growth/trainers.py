"""What batches cost, and who gets them, by the number of API processes and of trainers that ask at once."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count

from benchmarks import native
from benchmarks.bodies import Shape
from benchmarks.growth.effort import WARM_UP_NOTE, Effort, warmed_up
from benchmarks.growth.server import Server, Versions, quantile
from benchmarks.load import HttpCaller, RequestFailed
from benchmarks.results import Results, Table

SHAPE = Shape(8, 64)
GROUPS = 8
BATCH_SIZE = SHAPE.sequences * GROUPS
TRAINERS = 16
WAITING = (1, 4, 16, 64)
PROCESSES = (1, 4)
SUBMITTERS = 4
BATCHES_PER_TRAINER = 22
LONG_S = 20.0

FULL_QUEUE = Table(
    "growth_trainers",
    f"{TRAINERS} trainers, the queue is full",
    "ms",
    False,
    (),
    f"Each takes a batch of {GROUPS} groups of {SHAPE}, acknowledges it, and takes the next. All are on one run, or "
    "each is on a run of its own. In the second case, processes share nothing: what several processes cost more there "
    "is not the price of sharing. A retry is a batch that was read and lost to another trainer. Least and most are "
    "batches per trainer. The services with one and with several processes take "
    f"turns. {WARM_UP_NOTE}",
)
DRY = Table(
    "growth_waiting_trainers",
    "Trainers that wait on one run, the queue is dry",
    "ms",
    False,
    (),
    f"{SUBMITTERS} connections submit groups, a batch at a time. Each batch that a trainer gets is replaced by another "
    f"one, so that never more than {SUBMITTERS} wait. A and V are all that a batch costs, submission, take and "
    "acknowledgement.",
)


@dataclass
class Taken:
    """The batches of a run that trainers took: how many each, how long each request lasted in seconds, room for more.

    Attributes:
        last: After so many batches, no trainer asks for another. None means never.
    """

    run: str = "bench"
    last: int | None = None
    by_trainer: Counter[int] = field(default_factory=Counter)
    walls_s: list[float] = field(default_factory=list)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SUBMITTERS))
    done: bool = False


async def measure(versions: Versions, effort: Effort, results: Results) -> None:
    """Let trainers empty a queue, and wait at one that is empty."""
    with ExitStack() as stack:
        fleets = [(processes, stack.enter_context(versions.running(processes))) for processes in PROCESSES]
        for kept in warmed_up(effort, results):
            for processes, servers in fleets:
                for server in servers:
                    for runs in (1, TRAINERS):
                        await full_queue(server, processes, runs, kept)
        for trainers in WAITING:
            for _ in range(effort.rounds):
                for processes, servers in fleets:
                    for server in servers:
                        await dry(server, processes, trainers, 4 * effort.seconds, results)


async def full_queue(server: Server, processes: int, runs: int, results: Results) -> None:
    """Let trainers take what is queued in so many runs."""
    sharing = TRAINERS // runs
    takens = [Taken(f"bench-{n}", last=sharing * (BATCHES_PER_TRAINER - 1)) for n in range(runs)]
    for taken in takens:
        await fill(server, taken.run, sharing * BATCHES_PER_TRAINER)
    await server.settled()
    callers = [await server.dial() for _ in range(TRAINERS)]
    before, reads = server.cpu_s(), payload_reads(server)
    await asyncio.gather(*(train(caller, n, takens[n % runs]) for n, caller in enumerate(callers)))
    case = f"{named(processes)}, {'one run' if runs == 1 else f'{runs} runs'}"
    note(server, results, FULL_QUEUE, case, takens, before, reads)
    for caller in callers:
        caller.close()


async def fill(server: Server, run: str, batches: int) -> None:
    """Make a run, and queue groups for so many batches."""
    server.fresh(run, batch_size=BATCH_SIZE, keep_batches=0)
    submissions, numbers = native.binary_submissions(SHAPE, GROUPS, run=f"/v1/runs/{run}"), count()
    for n in range(batches):
        await server.call(submissions[n % len(submissions)](next(numbers)))


async def dry(server: Server, processes: int, trainers: int, seconds: float, results: Results) -> None:
    """Let trainers wait for what is submitted."""
    server.fresh("bench", batch_size=BATCH_SIZE, keep_batches=0)
    callers = [await server.dial() for _ in range(trainers)]
    taken, numbers = Taken(), count()
    training = [asyncio.create_task(train(caller, n, taken)) for n, caller in enumerate(callers)]
    await asyncio.sleep(seconds / 4)
    submitters = [await server.dial() for _ in range(SUBMITTERS)]
    before, reads, began = server.cpu_s(), payload_reads(server), time.perf_counter()
    await asyncio.gather(*(submit(caller, numbers, taken.room, began + seconds) for caller in submitters))
    elapsed_s = time.perf_counter() - began
    per_s = taken.by_trainer.total() / elapsed_s
    case = f"{trainers} trainer{'s' * (trainers > 1)}, {named(processes)}"
    note(server, results, DRY, case, [taken], before, reads, per_s)
    taken.done = True
    server.made("DELETE", "/v1/runs/bench")
    await asyncio.gather(*training, return_exceptions=True)
    for caller in (*callers, *submitters):
        caller.close()


async def train(caller: HttpCaller, trainer: int, taken: Taken) -> None:
    """Take and acknowledge batches until there are no more."""
    run = f"/v1/runs/{taken.run}"
    request = native.take_batch(binary=True, wait_s=LONG_S, run=run)
    while not taken.done:
        began = time.perf_counter()
        reply = await caller.call(request)
        if reply.status != 201:
            return
        taken.walls_s.append(time.perf_counter() - began)
        taken.by_trainer[trainer] += 1
        taken.room.release()
        if (await caller.call(native.acknowledge(reply, run))).status >= 300:
            raise RequestFailed("an acknowledgement failed")
        taken.done |= taken.last is not None and taken.by_trainer.total() > taken.last


async def submit(caller: HttpCaller, numbers: "count[int]", room: asyncio.Semaphore, until: float) -> None:
    """Submit groups for a while, a batch at a time, whenever there is room for one."""
    submissions = native.binary_submissions(SHAPE, GROUPS)
    while time.perf_counter() < until:
        await room.acquire()
        n = next(numbers)
        reply = await caller.call(submissions[n % len(submissions)](n))
        if reply.status >= 300:
            raise RequestFailed(f"{reply.status}: {reply.body[:300]!r}")


def note(
    server: Server,
    results: Results,
    table: Table,
    case: str,
    takens: Sequence[Taken],
    before: tuple[float, float],
    reads: int,
    per_s: float | None = None,
) -> None:
    """Take down what one round gave."""
    by_trainer = sum((taken.by_trainer for taken in takens), Counter[int]())
    batches = by_trainer.total()
    api_s, store_s = (after - former for after, former in zip(server.cpu_s(), before, strict=True))
    columns = {
        "A": api_s * 1000 / batches,
        "V": store_s * 1000 / batches,
        "retries": max(0.0, (payload_reads(server) - reads) / batches - 1),
        "p99": quantile([wall_s for taken in takens for wall_s in taken.walls_s], 0.99) * 1000,
    }
    if per_s is None:
        columns |= {"least": min(by_trainer.values()), "most": max(by_trainer.values())}
    else:
        columns |= {"batches/s": per_s}
    server.note(results, table, case, columns)


def payload_reads(server: Server) -> int:
    """Count the reads of a batch's payloads."""
    return int(server.redis.info("commandstats").get("cmdstat_mget", {"calls": 0})["calls"])


def named(processes: int) -> str:
    """Name so many processes."""
    return f"{processes} process{'es' * (processes > 1)}"
