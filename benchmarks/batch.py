"""How long a trainer waits for a batch."""

import gzip
import json
import time
from dataclasses import dataclass

from benchmarks.arena import Arena
from benchmarks.bodies import Shape, bodies, http_get, http_post
from benchmarks.contestants import Contestant
from benchmarks.load import Reply, Request
from benchmarks.results import Results, Table

SEQUENCES_PER_GROUP = 8
NOTE = (
    "`GET /batch` on an open connection, exactly one batch being queued. Each batch was checked to hold the sequences "
    "asked for. The bare endpoint reads the stored bytes of the same groups from Redis and answers a ready-made body, "
    "never compressed."
)
LAST_BYTE = Table(
    "batch", "Waiting for a batch, until its last byte", "ms", False, ("atropos", "bare, as stored"), NOTE
)
DECODED = Table(
    "batch_decoded",
    "Waiting for a batch, until it is decoded",
    "ms",
    False,
    ("atropos", "bare, as stored"),
    "The same with the client's own part, inflating and `json.loads`, which no server can make faster.",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of batch: sequences in it, tokens in each, and whether the client accepts gzip."""

    sequences: int
    tokens: int
    gzipped: bool

    @property
    def groups(self) -> int:
        """Groups in a batch."""
        return self.sequences // SEQUENCES_PER_GROUP

    def __str__(self) -> str:
        return f"{self.sequences} x {self.tokens}{', gzip' * self.gzipped}"


CASES = [Case(s, t, gzipped) for s, t in ((128, 512), (256, 2048)) for gzipped in (False, True)]


async def measure(arena: Arena, results: Results) -> None:
    """Run all cases, contestants interleaved in each round."""
    for case in CASES:
        shape = Shape(SEQUENCES_PER_GROUP, case.tokens)
        stored_bytes = arena.stored_bytes(shape)
        answer = b""
        for _ in range(arena.effort.rounds):
            bare = [] if case.gzipped else [arena.as_stored]
            for contestant in (arena.lachesis, arena.atropos, *bare):
                contestant.fresh(case.sequences, stored_bytes)
                await fill(contestant, case, shape)
                path = "/batch" if contestant is not arena.as_stored else f"/batch/{case.groups}"
                if contestant is arena.as_stored:
                    await one(contestant, http_post("/answer", answer))
                request = http_get(path, accept_gzip=case.gzipped)
                reply, waited_ms, decoded_ms = await take(contestant, request, case.sequences)
                answer = gzip.decompress(reply.body) if reply.gzipped else reply.body
                results.add(LAST_BYTE, str(case), contestant.name, waited_ms)
                results.add(DECODED, str(case), contestant.name, decoded_ms)


async def fill(contestant: Contestant, case: Case, shape: Shape) -> None:
    """Queue exactly one batch."""
    sent = bodies(shape)
    for n in range(case.groups):
        await one(contestant, contestant.submission(n, sent[n % len(sent)], gzipped=False, close=False))
    assert contestant.held() == case.groups


async def one(contestant: Contestant, request: Request) -> Reply:
    """Send one request."""
    caller = await contestant.dial()
    reply = await caller.call(request)
    caller.close()
    assert reply.status in (200, 201), reply.body[:300]
    return reply


async def take(contestant: Contestant, request: bytes, sequences: int) -> tuple[Reply, float, float]:
    """Take the batch; gives the reply, and milliseconds until its last byte and until it is decoded."""
    caller = await contestant.dial()
    began = time.perf_counter()
    reply = await caller.call(request)
    received = time.perf_counter()
    batch = json.loads(gzip.decompress(reply.body) if reply.gzipped else reply.body)["batch"]
    decoded = time.perf_counter()
    caller.close()
    assert reply.status == 200
    assert sum(len(group["tokens"]) for group in batch) == sequences
    return reply, (received - began) * 1000, (decoded - began) * 1000
