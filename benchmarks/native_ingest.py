"""How fast the native API takes groups in: a safetensors blob a request, or many groups in a frame."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import native
from benchmarks.arena import Arena
from benchmarks.bodies import Shape, http_post
from benchmarks.contestants import Contestant, Lachesis
from benchmarks.ingest import LARGE, NEVER_A_BATCH, PER_MILLION, SMALL
from benchmarks.load import Request, closed_loop
from benchmarks.native import RUN
from benchmarks.results import US, Results, Table

JSON_NAME, BARE_NAME = "lachesis, JSON", "bare"
RATE = Table(
    key="native_ingest",
    title="Taking groups in, natively",
    unit="groups/s",
    more_is_better=True,
    versus=("atropos", JSON_NAME, BARE_NAME),
    note=f"`POST {RUN}/groups` in a closed loop: a safetensors blob, or a frame of several. Atropos is sent the same "
    "groups in JSON, a list where there are several. The bare endpoint stores the same bytes unread, one SET a group, "
    "those of a request in one transaction. Each group has an id of its own, and each server says that it holds as "
    "many as were sent.",
)
CPU = Table(
    key="native_cpu",
    title="Processor time to take groups in, natively",
    unit="CPU s per million tokens",
    more_is_better=False,
    versus=("atropos", JSON_NAME, BARE_NAME),
    note="User and system time of the server and its Redis (Atropos has none), without the load generator's.",
)
OWN = Table(
    key="native_generator",
    title="Processor time of the load generator, natively",
    unit="CPU s per million tokens",
    more_is_better=False,
    versus=(),
    note="What the load generator itself used in the rounds above, on the cores of the server that it loads.",
)
CASES = [
    (shape, groups, connections)
    for shape in (SMALL, LARGE)
    for groups, connections in ((1, 1), (1, 4), (1, 32), (8, 1), (8, 4), (32, 1), (32, 4))
]


@dataclass(frozen=True)
class Way:
    """One who takes the same groups in, and how."""

    name: str
    server: Contestant
    fresh: Callable[[], None]
    request: Callable[[int], Request]
    held: Callable[[], int]


async def measure(arena: Arena, results: Results) -> None:
    """Run all cases, contestants interleaved in each round."""
    for shape, groups, connections in CASES:
        several = f"{groups} groups a request, " * (groups > 1)
        case = f"{shape}, {several}{connections} connection{'s' * (connections > 1)}"
        for _ in range(arena.effort.rounds):
            for way in ways(arena, shape, groups):
                way.fresh()
                cpu_before_s = way.server.cpu_s()
                load = await closed_loop(way.server.dial, way.request, connections, arena.effort.seconds)
                cpu_s = way.server.cpu_s() - cpu_before_s
                sent = load.calls * groups
                assert way.held() == sent, f"{way.name}: {way.held()} of {sent} held"
                results.add(RATE, case, way.name, load.per_s * groups)
                million_tokens = sent * shape.tokens_per_group / PER_MILLION
                results.add(CPU, case, way.name, cpu_s / million_tokens)
                results.add(OWN, case, way.name, load.own_cpu_s / million_tokens)
                way.fresh()


def ways(arena: Arena, shape: Shape, groups: int) -> list[Way]:
    """Everybody who takes such requests, in the order they are measured in each round."""
    atropos, bare = arena.atropos, arena.as_sent

    def native_way(name: str, server: Lachesis, submissions: Sequence[native.Numbered]) -> Way:
        return Way(
            name,
            server,
            lambda: native.fresh(server, NEVER_A_BATCH),
            lambda n: submissions[n % len(submissions)](n),
            lambda: native.held(server),
        )

    binary = native.binary_submissions(shape, groups)
    body = binary[0].body
    to_bare = http_post(f"/pieces/{groups}" if groups > 1 else "/as-sent", body)
    plain = native.made_up(shape)
    text = [plain[i % len(plain)] for i in range(groups)]
    path, value = ("/scored_data_list", text) if groups > 1 else ("/scored_data", text[0])
    to_atropos = http_post(path, json.dumps(value).encode())
    return [
        native_way(US, arena.lachesis, binary),
        native_way(arena.everysec.name, arena.everysec, binary),
        native_way(JSON_NAME, arena.lachesis, native.json_submissions(shape, groups)),
        Way("atropos", atropos, lambda: atropos.fresh(NEVER_A_BATCH, 0), lambda _: to_atropos, atropos.held),
        Way(BARE_NAME, bare, lambda: bare.fresh(NEVER_A_BATCH, len(body)), lambda _: to_bare, bare.held),
    ]
