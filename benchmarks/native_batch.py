"""How long a trainer of the native API waits until it has a batch as arrays, and what httpx adds to that."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from benchmarks import native
from benchmarks.arena import Arena
from benchmarks.batch import SEQUENCES_PER_GROUP, one
from benchmarks.bodies import Shape, bodies, http_get
from benchmarks.contestants import Contestant, Lachesis
from benchmarks.load import Reply, Request
from benchmarks.native import RUN
from benchmarks.results import Results, Table
from lachesis.wire.batch_file import BatchFile
from lachesis.wire.blob import Buffer
from lachesis.wire.groups import SAFETENSORS

JSON_NAME, HTTPX_NAME = "lachesis, JSON", "lachesis, by httpx"
CASES = ((128, 512), (256, 2048))
ARRAYS = ("tokens", "masks", "inference_logprobs", "scores", "tokens.lengths")

Arrays = dict[str, NDArray[Any]]

WAITING = Table(
    "native_batch",
    "Waiting for a batch, natively, until it is in arrays",
    "ms",
    False,
    ("atropos", JSON_NAME),
    f"`POST {RUN}/batches`, exactly one batch being queued, until tokens, masks, logprobs, scores and lengths are five "
    "contiguous numpy arrays. Atropos is asked by `GET /batch`; its JSON is read by `json` and made arrays by numpy. "
    "All over a plain socket, but where httpx is named. Each batch was checked to hold the tokens asked for.",
)
PARTS = Table(
    "native_batch_parts",
    "Of that, until the last byte",
    "ms",
    False,
    ("atropos", JSON_NAME),
    "The server's part and the transport's; the rest is the client's decoding.",
)


@dataclass(frozen=True)
class Way:
    """One who hands out batches: how a group is put in, how a batch is asked for, and how its reply is read."""

    name: str
    server: Contestant
    fresh: Callable[[], None]
    fill: Callable[[int], Request]
    held: Callable[[], int]
    request: bytes
    read: Callable[[Reply], Arrays]


async def measure(arena: Arena, results: Results) -> None:
    """Run all cases, contestants interleaved in each round."""
    for sequences, tokens in CASES:
        case, groups = f"{sequences} x {tokens}", sequences // SEQUENCES_PER_GROUP
        for _ in range(arena.effort.rounds):
            for way in ways(arena, Shape(SEQUENCES_PER_GROUP, tokens), sequences):
                way.fresh()
                for n in range(groups):
                    await one(way.server, way.fill(n))
                assert way.held() == groups
                caller = await way.server.dial()
                began = time.perf_counter()
                reply = await caller.call(way.request)
                received = time.perf_counter()
                arrays = way.read(reply)
                decoded = time.perf_counter()
                caller.close()
                check(arrays, sequences, tokens)
                results.add(PARTS, case, way.name, (received - began) * 1000)
                results.add(WAITING, case, way.name, (decoded - began) * 1000)
            native.fresh(arena.lachesis, sequences)
            for n in range(groups):
                await one(arena.lachesis, blob_of(Shape(SEQUENCES_PER_GROUP, tokens), n))
            received_ms, decoded_ms = by_httpx(arena.lachesis, sequences, tokens)
            results.add(PARTS, case, HTTPX_NAME, received_ms)
            results.add(WAITING, case, HTTPX_NAME, decoded_ms)


def ways(arena: Arena, shape: Shape, sequences: int) -> list[Way]:
    """Everybody who hands out such batches, in the order they are measured in each round."""
    lachesis, atropos = arena.lachesis, arena.atropos

    def native_way(name: str, *, binary: bool, read: Callable[[Reply], Arrays]) -> Way:
        return Way(
            name,
            lachesis,
            lambda: native.fresh(lachesis, sequences),
            lambda n: blob_of(shape, n),
            lambda: native.held(lachesis),
            native.take_batch(binary=binary),
            read,
        )

    sent = bodies(shape)
    return [
        native_way("lachesis", binary=True, read=lambda reply: arrays_of_file(reply.received)),
        native_way(JSON_NAME, binary=False, read=lambda reply: arrays_of_json(json.loads(reply.body)["groups"])),
        Way(
            "atropos",
            atropos,
            lambda: atropos.fresh(sequences, 0),
            lambda n: atropos.submission(n, sent[n % len(sent)], gzipped=False, close=False),
            atropos.held,
            http_get("/batch"),
            lambda reply: arrays_of_json(json.loads(reply.body)["batch"]),
        ),
    ]


def blob_of(shape: Shape, n: int) -> Request:
    """Prepare the n-th group's submission."""
    submissions = native.binary_submissions(shape, 1)
    return submissions[n % len(submissions)](n)


def by_httpx(lachesis: Lachesis, sequences: int, tokens: int) -> tuple[float, float]:
    """Take a batch by httpx on an open connection; gives milliseconds until its last byte and until the arrays."""
    with httpx.Client(base_url=f"http://127.0.0.1:{lachesis.port}", timeout=60, trust_env=False) as client:
        client.get(RUN).raise_for_status()
        began = time.perf_counter()
        reply = client.post(f"{RUN}/batches", headers={"Accept": SAFETENSORS})
        received = time.perf_counter()
        arrays = arrays_of_file(reply.content)
        decoded = time.perf_counter()
    check(arrays, sequences, tokens)
    return (received - began) * 1000, (decoded - began) * 1000


def arrays_of_file(body: Buffer) -> Arrays:
    """View the columns of a batch."""
    file = BatchFile(body)
    return {name: np.asarray(file.whole(name)) for name in ARRAYS}


def arrays_of_json(groups: list[dict[str, Any]]) -> Arrays:
    """Return the same of what JSON makes of a batch."""
    return {
        "tokens": np.concatenate([np.array(row, np.int32) for group in groups for row in group["tokens"]]),
        "masks": np.concatenate([np.array(row, np.int32) for group in groups for row in group["masks"]]),
        "inference_logprobs": np.concatenate(
            [np.array(row, np.float32) for group in groups for row in group["inference_logprobs"]]
        ),
        "scores": np.array([score for group in groups for score in group["scores"]]),
        "tokens.lengths": np.array([len(row) for group in groups for row in group["tokens"]], np.int32),
    }


def check(arrays: Arrays, sequences: int, tokens: int) -> None:
    """Check that a batch holds what was asked for."""
    assert {name: len(arrays[name]) for name in ARRAYS} == {
        name: sequences if name in ("scores", "tokens.lengths") else sequences * tokens for name in ARRAYS
    }
