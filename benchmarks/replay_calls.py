"""The replay buffer of this service: its requests, prepared as bytes, and a run to send them to."""

import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import native
from benchmarks.contestants import Lachesis
from benchmarks.load import Caller
from benchmarks.native import JSON, RUN
from lachesis.wire import blob
from lachesis.wire.frame import frame
from lachesis.wire.groups import SAFETENSORS

Content = NDArray[np.uint8]

SAMPLED = 256
FRAME_FRAGMENTS = 1000
_FRAME_BYTES = 20_000_000


def fresh(lachesis: Lachesis, fragments_per_chunk: int = 1) -> None:
    """Delete the run and create it again, with an empty buffer."""
    native.fresh(lachesis, 1)
    settings = {"fragments_per_chunk": fragments_per_chunk, "max_chunks": 2_000_000, "max_bytes": 2**36}
    lachesis.call("PUT", f"{RUN}/replay", json=settings).raise_for_status()


def chunks(lachesis: Lachesis) -> int:
    """Count the chunks in the buffer."""
    return int(lachesis.call("GET", f"{RUN}/replay").raise_for_status().json()["sampleable_chunks"])


async def fill(lachesis: Lachesis, size_bytes: int, fragments: int, first: int = 0) -> None:
    """Insert the worker's fragments from the ``first`` on until there are so many, in large frames."""
    caller, content = await lachesis.dial(), fragments_of(size_bytes)
    at_once = min(FRAME_FRAGMENTS, _FRAME_BYTES // size_bytes)
    for number in range(first, fragments, at_once):
        request = insertion(content, min(at_once, fragments - number), first=number)
        reply = await caller.call(request)
        assert reply.status == 201, reply.body[:300]
    caller.close()


async def take(caller: Caller, strategy: str, *, binary: bool) -> dict[str, Any]:
    """Take a sample until its last byte; returns what it is."""
    body = json.dumps({"num_chunks": SAMPLED, "strategy": strategy}).encode()
    head = native.http_post(f"{RUN}/replay/samples", len(body), JSON, SAFETENSORS if binary else JSON)
    reply = await caller.call(head + body)
    assert reply.status == 201, reply.body[:300]
    taken: dict[str, Any] = json.loads(blob.read_header(reply.body).metadata["sample"] if binary else reply.body)
    return taken


def fragments_of(size_bytes: int) -> Content:
    """Make up what each fragment holds."""
    return np.frombuffer(os.urandom(size_bytes), np.uint8)


def insertion(content: Content, count: int, n: int = 0, first: int | None = None) -> bytes:
    """Write the n-th request of so many fragments each, or that of the fragments from the ``first`` on."""
    body = body_of(content, count, n * count if first is None else first)
    return native.http_post(f"{RUN}/replay/fragments", len(body), SAFETENSORS) + body


def body_of(content: Content, count: int, first: int) -> bytes:
    """Write a fragment of the worker, or a frame of several, from a number on."""
    written = [_one(content, number) for number in range(first, first + count)]
    return written[0] if count == 1 else frame(written, "fragments")


def _one(content: Content, number: int) -> bytes:
    said = {"worker": "worker", "number": str(number), "policy_version": "0", "priority": str(1 + number % 97)}
    return blob.write({"obs": content}, said)
