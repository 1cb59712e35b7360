"""Whether to relay stored groups in a frame, as this service does, or to merge their columns first (ADR 4)."""

import time

from benchmarks import native
from benchmarks.arena import Arena
from benchmarks.bodies import Shape
from benchmarks.native_batch import ARRAYS, Arrays, arrays_of_frame
from benchmarks.results import US, Results, Table
from lachesis.wire import blob, frame

CASES = ((32, Shape(8, 2048)), (256, Shape(4, 512)))
MERGING = "merging"
REPEATED = 11

RELAY = Table(
    "relay",
    "Relaying stored groups, beside merging their columns",
    "ms",
    False,
    (MERGING,),
    "Server: from the payloads of a batch to its body in one piece, for both (a relayed one is really sent as the "
    "pieces it is in). Client: from that body to five contiguous arrays, which merged columns are already.",
)


async def measure(_: Arena, results: Results) -> None:
    """Do both by turns, in this process."""
    for groups, shape in CASES:
        made = [native.blob(columns) for columns in native.made_up(shape)]
        payloads = [made[n % len(made)] for n in range(groups)]
        for _ in range(REPEATED):
            for name, serve, read in ((US, relayed, arrays_of_frame), (MERGING, merged, arrays_of_merged)):
                began = time.perf_counter()
                body = serve(payloads)
                served = time.perf_counter()
                arrays = read(body)
                done = time.perf_counter()
                assert len(arrays["tokens"]) == groups * shape.tokens_per_group
                results.add(RELAY, f"{groups} groups of {shape}: server", name, (served - began) * 1000)
                results.add(RELAY, f"{groups} groups of {shape}: client", name, (done - served) * 1000)
                results.add(RELAY, f"{groups} groups of {shape}: both", name, (done - began) * 1000)


def relayed(payloads: list[bytes]) -> bytes:
    """What this service sends."""
    return frame.frame(payloads, "batch", {"batch": "{}"})


def merged(payloads: list[bytes]) -> bytes:
    """One file in which each column is one tensor. All groups must have the same columns, of the same types."""
    headers = [blob.read_header(payload) for payload in payloads]
    tensors, pieces = [], []
    for name in ARRAYS:
        infos = [header.tensors[name] for header in headers]
        assert len({info.dtype for info in infos}) == 1
        slices = [memoryview(payload)[info.start : info.end] for payload, info in zip(payloads, infos, strict=True)]
        shape = (sum(info.shape[0] for info in infos),)
        tensors.append((name, infos[0].dtype, shape, sum(map(len, slices))))
        pieces += slices
    return b"".join([blob.header_of(tensors, {"batch": "{}"}), *pieces])


def arrays_of_merged(body: bytes) -> Arrays:
    """The columns of merged groups."""
    header = blob.read_header(body)
    return {name: blob.tensor(body, header.tensors[name]) for name in ARRAYS}
