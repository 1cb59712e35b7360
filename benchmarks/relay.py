"""Whether to join the columns of a batch at the service, as this one does, or to relay its stored groups (ADR 9)."""

import time

import numpy as np

from app.api.http.replies import pieces
from benchmarks import native
from benchmarks.arena import Arena
from benchmarks.bodies import Shape
from benchmarks.native_batch import ARRAYS, Arrays, arrays_of_file
from benchmarks.results import US, Results, Table
from lachesis.wire import blob, frame
from lachesis.wire.batch_file import parts_of
from lachesis.wire.columns import unpack

CASES = ((32, Shape(8, 2048)), (256, Shape(4, 512)))
RELAYING = "relaying"
REPEATED = 11

RELAY = Table(
    "relay",
    "Joining the columns of a batch, beside relaying its groups",
    "ms",
    False,
    (RELAYING,),
    "Server: from the payloads of a batch to the pieces that are sent. Client: from the body to five arrays.",
)


async def measure(_: Arena, results: Results) -> None:
    """Do both by turns, in this process."""
    for groups, shape in CASES:
        made = [native.blob(columns) for columns in native.made_up(shape)]
        payloads = [made[n % len(made)] for n in range(groups)]
        for _round in range(REPEATED):
            for name, serve, read in ((US, joined, arrays_of_file), (RELAYING, relayed, arrays_of_frame)):
                began = time.perf_counter()
                sent = list(pieces(serve(payloads)))
                served_s = time.perf_counter() - began
                body = b"".join(sent)
                began = time.perf_counter()
                arrays = read(body)
                read_s = time.perf_counter() - began
                assert len(arrays["tokens"]) == groups * shape.tokens_per_group
                results.add(RELAY, f"{groups} groups of {shape}: server", name, served_s * 1000)
                results.add(RELAY, f"{groups} groups of {shape}: client", name, read_s * 1000)
                results.add(RELAY, f"{groups} groups of {shape}: both", name, (served_s + read_s) * 1000)


def joined(payloads: list[bytes]) -> list[blob.Buffer]:
    """Return what this service sends."""
    return parts_of(payloads, [1] * len(payloads), {"batch": "{}"})


def relayed(payloads: list[bytes]) -> list[blob.Buffer]:
    """Return the groups as they are stored, and a header before them."""
    return [frame.frame_header([len(payload) for payload in payloads], "batch", {"batch": "{}"}), *payloads]


def arrays_of_frame(body: bytes) -> Arrays:
    """Lay the columns of relayed groups end to end."""
    _, blobs = frame.split(body)
    groups = [unpack(found).columns for found in blobs]
    arrays = {
        name: np.concatenate([group[name].values for group in groups]) for name in ARRAYS if name != "tokens.lengths"
    }
    return {**arrays, "tokens.lengths": np.concatenate([group["tokens"].lengths[0] for group in groups])}
