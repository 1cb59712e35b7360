"""How fast groups are taken in, and what that costs in processor time."""

from dataclasses import dataclass

from benchmarks.arena import Arena
from benchmarks.bodies import Shape, bodies
from benchmarks.contestants import Contestant
from benchmarks.load import Load, closed_loop
from benchmarks.results import Results, Table

SMALL, LARGE = Shape(8, 512), Shape(8, 2048)
NEVER_A_BATCH = 65_536
PER_MILLION = 1e6
CPU_AT_CONNECTIONS = 4

RATE = Table(
    key="ingest",
    title="Taking groups in",
    unit="groups/s",
    more_is_better=True,
    versus=("atropos", "bare, as sent", "bare, as stored", "redis alone"),
    note="`POST /scored_data` in a closed loop, JSON as Atropos's client writes it. Every reply was 200, and each "
    "server says that it holds as many groups as were sent.",
)
CPU = Table(
    key="cpu",
    title="Processor time to take groups in",
    unit="CPU s per million tokens",
    more_is_better=False,
    versus=("atropos", "bare, as stored"),
    note="User and system time of the server and its Redis (Atropos has none), without the load generator's.",
)
OWN = Table(
    key="generator",
    title="Processor time of the load generator",
    unit="CPU s per million tokens",
    more_is_better=False,
    versus=(),
    note="What the load generator itself used in the rounds above, on the cores of the server that it loads. "
    "It limits the rates: two cores have 2 CPU seconds a second for both.",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One way to send."""

    shape: Shape
    connections: int
    gzipped: bool = False
    reconnect: bool = False

    def __str__(self) -> str:
        how = ", gzip" * self.gzipped + ", new connection each" * self.reconnect
        return f"{self.shape}, {self.connections} connection{'s' * (self.connections > 1)}{how}"


CASES = [
    Case(shape, connections, gzipped, reconnect)
    for shape in (SMALL, LARGE)
    for connections, gzipped, reconnect in (
        (1, False, False),
        (4, False, False),
        (32, False, False),
        (4, True, False),
        (4, False, True),
    )
]


async def measure(arena: Arena, results: Results) -> None:
    """Run all cases, contestants interleaved in each round."""
    stored_bytes = {shape: arena.stored_bytes(shape) for shape in (SMALL, LARGE)}
    for case in CASES:
        sent = bodies(case.shape, case.gzipped)
        for _ in range(arena.effort.rounds):
            for contestant in arena.everyone():
                contestant.fresh(NEVER_A_BATCH, stored_bytes[case.shape])
                cpu_before_s = contestant.cpu_s()
                load = await send(contestant, case, sent, arena.effort.seconds)
                cpu_s = contestant.cpu_s() - cpu_before_s
                assert contestant.held() == load.calls, f"{contestant.name}: {contestant.held()} of {load.calls} held"
                results.add(RATE, str(case), contestant.name, load.per_s)
                if case.connections == CPU_AT_CONNECTIONS:
                    million_tokens = load.calls * case.shape.tokens_per_group / PER_MILLION
                    results.add(CPU, str(case), contestant.name, cpu_s / million_tokens)
                    results.add(OWN, str(case), contestant.name, load.own_cpu_s / million_tokens)
                contestant.fresh(NEVER_A_BATCH, 0)


async def send(contestant: Contestant, case: Case, sent: list[bytes], seconds: float) -> Load:
    """Load one contestant for a while."""
    options = {"gzipped": case.gzipped, "close": case.reconnect}
    prepared = [contestant.submission(i, body, **options) for i, body in enumerate(sent)]

    def request(n: int) -> bytes:
        return contestant.submission(n, b"", **options) if contestant.keyed else prepared[n % len(prepared)]

    return await closed_loop(contestant.dial, request, case.connections, seconds, case.reconnect)
