"""The native API of this service: its requests, prepared as bytes, and a run to send them to."""

import json
import random
from functools import cache
from itertools import cycle, islice
from typing import Any

import numpy as np

from benchmarks.bodies import VARIANTS, Shape, group
from benchmarks.contestants import Lachesis
from benchmarks.load import Reply
from lachesis.wire.columns import Ragged, in_full, pack
from lachesis.wire.frame import frame
from lachesis.wire.groups import SAFETENSORS

JSON = "application/json"
RUN = "/v1/runs/bench"
_PLACE = "@" * 32  # where an id goes: of the length of all ids, so that no offset in a header changes
_DTYPES = {"tokens": np.int32, "masks": np.int32, "inference_logprobs": np.float32}


class Numbered:
    """A request with room for the ids of its groups, so that no two of them are the same submission.

    It is in pieces, ids between what stays the same. To join megabytes for each would take the load generator as long
    as the service takes to store them. Others are sent what is there already.

    Attributes:
        body: Its body, without ids.
    """

    def __init__(self, head: bytes, body: bytes) -> None:
        self.body = body
        self._parts = (head + body).split(_PLACE.encode())

    def __call__(self, n: int) -> list[bytes]:
        """Give the n-th request."""
        groups = len(self._parts) - 1
        pieces = [self._parts[0]]
        for number, part in enumerate(self._parts[1:], n * groups):
            pieces += (b"%032x" % number, part)
        return pieces


@cache
def made_up(shape: Shape) -> list[dict[str, Any]]:
    """Make up groups, the same that everyone is sent."""
    rng = random.Random(shape.tokens)
    return [group(shape, rng) for _ in range(VARIANTS)]


def blob(columns: dict[str, Any], group_id: str = _PLACE, **metadata: str) -> bytes:
    """Write a group in binary, as the SDK does, with its id and other metadata."""
    lengths = np.array([len(row) for row in columns["tokens"]], np.int32)
    ragged = {name: Ragged(np.concatenate(columns[name], dtype=t), (lengths,)) for name, t in _DTYPES.items()}
    ragged["scores"] = Ragged(np.array(columns["scores"], np.float64))
    return pack(ragged, b"{}", {"id": group_id} | metadata)


@cache
def binary_submissions(
    shape: Shape, groups: int, *, compact: bool = True, token: str | None = None, run: str = RUN
) -> list[Numbered]:
    """Prepare submissions in binary: a blob, or a frame of several; as older versions know them if not compact."""
    blobs = [blob(columns) for columns in made_up(shape)]
    if not compact:
        blobs = [bytes(in_full(one)) for one in blobs]
    bodies = blobs if groups == 1 else [frame(list(islice(cycle(blobs), groups)), "groups")]
    return [Numbered(http_post(f"{run}/groups", len(body), SAFETENSORS, token=token), body) for body in bodies]


@cache
def json_submissions(shape: Shape, groups: int) -> list[Numbered]:
    """Prepare the same in JSON."""
    texts = [json.dumps({"id": _PLACE} | columns) for columns in made_up(shape)]
    if groups > 1:
        texts = ['{"groups": [' + ", ".join(islice(cycle(texts), groups)) + "]}"]
    return [Numbered(http_post(f"{RUN}/groups", len(text), JSON), text.encode()) for text in texts]


def http_post(path: str, body_bytes: int, media_type: str, accept: str = "*/*", token: str | None = None) -> bytes:
    """Write the head of a POST request."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media_type}\r\nAccept: {accept}\r\n"
    if token is not None:
        head += f"Authorization: Bearer {token}\r\n"
    return f"{head}Content-Length: {body_bytes}\r\n\r\n".encode()


def post_json(path: str, value: object) -> bytes:
    """Prepare a whole request with a JSON body."""
    body = json.dumps(value).encode()
    return http_post(path, len(body), JSON) + body


def take_batch(*, binary: bool, wait_s: float = 0, run: str = RUN) -> bytes:
    """Prepare the request for a batch."""
    return http_post(f"{run}/batches?wait_s={wait_s:g}", 0, JSON, SAFETENSORS if binary else JSON)


def acknowledge(reply: Reply, run: str = RUN) -> bytes:
    """Prepare the acknowledgement of a batch in binary."""
    head = json.loads(bytes(reply.received[8 : 8 + int.from_bytes(reply.received[:8], "little")]))
    info = json.loads(head["__metadata__"]["batch"])
    return post_json(f"{run}/batches/{info['batch']}/ack", {"lease": info["lease"]})


def fresh(lachesis: Lachesis, batch_size: int) -> None:
    """Delete the run and create it again."""
    if lachesis.call("GET", RUN).status_code == 200:
        lachesis.call("DELETE", RUN).raise_for_status()
    made = {"name": RUN.rpartition("/")[2], "batch_size": batch_size, "keep_batches": 0}
    lachesis.call("POST", "/v1/runs", json=made).raise_for_status()


def held(lachesis: Lachesis) -> int:
    """Count the groups in the run's queue."""
    return int(lachesis.call("GET", f"{RUN}/status").raise_for_status().json()["queue_size"])
