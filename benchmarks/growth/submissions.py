"""What a submission costs under load: in binary by the number of API processes, in JSON, and with a token."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count

from benchmarks import native
from benchmarks.bodies import Shape, bodies, http_post, redis_set
from benchmarks.growth.effort import WARM_UP_NOTE, Effort, warmed_up
from benchmarks.growth.server import Server, Versions
from benchmarks.load import RedisCaller, Request, closed_loop
from benchmarks.memory import NEVER_A_BATCH
from benchmarks.results import Results, Table

SHAPE = Shape(8, 512)
CONNECTIONS = 32
PROCESSES = (1, 4)
CONNECTION_COUNTS = (CONNECTIONS, 2 * CONNECTIONS, 4 * CONNECTIONS)  # the last: as many to each of 4 processes
JSON_SHAPES = (SHAPE, Shape(8, 2048))
RESTARTS = 10  # two equal servers differ by some per cent, for as long as they run
TURNS = 4

TABLE = Table(
    "growth_submissions",
    f"Submissions of {SHAPE}",
    "ms",
    False,
    (),
    "A closed loop. The services with one and with several processes take turns. The bare `SET` writes the same bytes "
    f"to the Valkey of one process, over {CONNECTIONS} connections. One commit stores the submissions that meet in a "
    f"process: at most one of each of its connections. So compare 4 processes with {4 * CONNECTIONS} connections to 1 "
    f"process with {CONNECTIONS}. Valkey rewrites its append-only file between the rounds, not during them. "
    f"{WARM_UP_NOTE}",
)
JSON_TABLE = Table(
    "growth_json",
    f"`POST /scored_data` over {CONNECTIONS} connections",
    "ms",
    False,
    (),
    f"Groups in JSON, as environments of Atropos send them. A closed loop, one API process. {WARM_UP_NOTE}",
)
ACCESS_TABLE = Table(
    "growth_access",
    f"Submissions of {SHAPE} over {CONNECTIONS} connections, with a token",
    "ms",
    False,
    (),
    f"A closed loop to one API process. An open service and one that asks for tokens take {TURNS} turns, and "
    f"are started {RESTARTS} times in each round. `of open` is the median of the ratios of all turns.",
)


async def measure(versions: Versions, effort: Effort, results: Results) -> None:
    """Send groups to one process and to several, and the same bytes to Valkey."""
    numbers = count()
    with ExitStack() as stack:
        fleets = [(processes, stack.enter_context(versions.running(processes))) for processes in PROCESSES]
        for kept in warmed_up(effort, results):
            for processes, servers in fleets:
                for server in servers:
                    for connections in CONNECTION_COUNTS:
                        await one_round(server, processes, connections, numbers, effort, kept)
                    if processes == 1:
                        await bare_round(server, effort, kept)
    with versions.running() as servers:
        for kept in warmed_up(effort, results):
            for server in servers:
                for shape in JSON_SHAPES:
                    await one_round_of_json(server, shape, effort, kept)


async def measure_access(versions: Versions, effort: Effort, results: Results) -> None:
    """Send groups to a service without tokens, and to one that asks for them."""
    numbers = count()
    for _ in range(effort.rounds * RESTARTS):
        with versions.running() as opened, versions.running(closed=True) as closed:
            for both in zip(opened, closed, strict=True):
                tokens = [None, both[1].service.token("environment", runs=["bench"])]
                await turns_of_access(both, tokens, numbers, effort, results)


async def one_round(
    server: Server, processes: int, connections: int, numbers: "count[int]", effort: Effort, results: Results
) -> None:
    """Measure submissions once more."""
    server.fresh("bench", batch_size=NEVER_A_BATCH)
    await server.rewritten()
    submissions = native.binary_submissions(SHAPE, 1, compact=False)
    commits, before = committed(server), server.cpu_s()
    load = await closed_loop(server.dial, in_turn(submissions, numbers), connections, 2 * effort.seconds)
    api_s, store_s = (after - former for after, former in zip(server.cpu_s(), before, strict=True))
    columns = {
        "A": api_s * 1000 / load.calls,
        "V": store_s * 1000 / load.calls,
        "submissions per commit": load.calls / (committed(server) - commits),
    }
    server.note(results, TABLE, f"{connections} connections, {processes} process{'es' * (processes > 1)}", columns)
    server.fresh("bench", batch_size=NEVER_A_BATCH)


async def bare_round(server: Server, effort: Effort, results: Results) -> None:
    """Write the same bytes to Valkey once more."""
    value = native.binary_submissions(SHAPE, 1, compact=False)[0].body
    path = str(server.folder / "data" / "redis" / "redis.sock")
    before = server.cpu_s()
    load = await closed_loop(
        lambda: RedisCaller.dial(path), lambda n: redis_set(b"bare:%d" % n, value), CONNECTIONS, effort.seconds
    )
    store_s = server.cpu_s()[1] - before[1]
    server.note(results, TABLE, f"{CONNECTIONS} connections, a bare SET", {"V": store_s * 1000 / load.calls})
    for first in range(0, load.calls, 1000):
        server.redis.unlink(*(b"bare:%d" % n for n in range(first, min(first + 1000, load.calls))))


async def turns_of_access(
    servers: Sequence[Server], tokens: Sequence[str | None], numbers: "count[int]", effort: Effort, results: Results
) -> None:
    """Measure the open service and the closed one in turns."""
    for turn in range(TURNS):
        costs_ms = [0.0, 0.0]
        for which in (0, 1) if turn % 2 else (1, 0):
            server = servers[which]
            server.fresh("bench", batch_size=NEVER_A_BATCH)
            requests = in_turn(native.binary_submissions(SHAPE, 1, compact=False, token=tokens[which]), numbers)
            before = server.cpu_s()
            load = await closed_loop(server.dial, requests, CONNECTIONS, effort.seconds)
            costs_ms[which] = (server.cpu_s()[0] - before[0]) * 1000 / load.calls
        for server, case, cost_ms in zip(servers, ("open", "with a token"), costs_ms, strict=True):
            server.note(results, ACCESS_TABLE, case, {"A": cost_ms, "of open": cost_ms / costs_ms[0]})


async def one_round_of_json(server: Server, shape: Shape, effort: Effort, results: Results) -> None:
    """Measure groups of a shape in JSON once more."""
    requests = [http_post("/runs/bench/atropos/scored_data", body) for body in bodies(shape)]
    server.fresh("bench", batch_size=NEVER_A_BATCH)
    before = server.cpu_s()
    load = await closed_loop(server.dial, lambda n: requests[n % len(requests)], CONNECTIONS, effort.seconds)
    api_s, store_s = (after - former for after, former in zip(server.cpu_s(), before, strict=True))
    server.note(results, JSON_TABLE, str(shape), {"A": api_s * 1000 / load.calls, "V": store_s * 1000 / load.calls})
    server.fresh("bench", batch_size=NEVER_A_BATCH)


def in_turn(submissions: Sequence[native.Numbered], numbers: "count[int]") -> Callable[[int], Request]:
    """Give the n-th request: of submissions in turn, with ids of their own."""
    return lambda n: submissions[n % len(submissions)](next(numbers))


def committed(server: Server) -> int:
    """Count the commits so far: each tells once that something was admitted."""
    return int(server.redis.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"])
