"""What clients of a replay buffer send, spelled once."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from lachesis.wire import blob
from lachesis.wire.frame import frame
from lachesis.wire.groups import SAFETENSORS
from tests.api.native_groups import BINARY, tensor_in_json

RUN = "/v1/runs/r"
REPLAY = f"{RUN}/replay"
AS_BINARY = {"Accept": SAFETENSORS}
Sample = dict[str, Any]


def tensors_of(number: int) -> dict[str, NDArray[Any]]:
    """Tensors that tell which fragment they are of."""
    return {"obs/image": np.full((2, 3), number % 256, np.uint8), "action/camera": np.array([number, 0.5], np.float32)}


def in_binary(number: int, worker: str = "w", tensors: Mapping[str, NDArray[Any]] | None = None, **keys: Any) -> bytes:
    """A fragment as a blob; keys are JSON values."""
    said = {"number": number, "policy_version": 0, **keys}
    metadata = {"worker": worker} | {name: json.dumps(value) for name, value in said.items() if value is not None}
    return blob.write(tensors_of(number) if tensors is None else tensors, metadata)


def in_json(number: int, worker: str = "w", **keys: Any) -> dict[str, Any]:
    """The same in JSON."""
    tensors = {name: tensor_in_json(array) for name, array in tensors_of(number).items()}
    return {"worker": worker, "number": number, "policy_version": 0, "tensors": tensors, **keys}


async def make_buffer(client: httpx.AsyncClient, **settings: Any) -> None:
    """Make the run and its buffer."""
    reply = await client.post("/v1/runs", json={"name": "r", "batch_size": 1})
    assert reply.status_code in (200, 201), reply.text
    reply = await client.put(REPLAY, json=settings)
    assert reply.status_code == 200, reply.text


async def insert(
    client: httpx.AsyncClient, numbers: Sequence[int], worker: str = "w", wait_s: float = 0, **keys: Any
) -> list[dict[str, Any]]:
    """Send fragments of a worker; returns their receipts."""
    body = frame([in_binary(number, worker, **keys) for number in numbers], "fragments")
    reply = await client.post(f"{REPLAY}/fragments", params={"wait_s": wait_s}, content=body, headers=BINARY)
    assert reply.status_code == 201, reply.text
    receipts: list[dict[str, Any]] = reply.json()["fragments"]
    return receipts


async def take(client: httpx.AsyncClient, wait_s: float = 0, **asked: Any) -> Sample:
    """Take a sample that must be there; without payloads."""
    reply = await client.post(f"{REPLAY}/samples", params={"wait_s": wait_s}, json=asked)
    assert reply.status_code == 201, (reply.text, reply.headers)
    sample: Sample = reply.json()
    return sample


async def end(client: httpx.AsyncClient, sample: Sample, how: str = "ack", **said: Any) -> httpx.Response:
    """End a sample under the lease it came with."""
    return await client.post(f"{REPLAY}/samples/{sample['sample']}/{how}", json={"lease": sample["lease"], **said})


async def state(client: httpx.AsyncClient) -> dict[str, Any]:
    reply = await client.get(REPLAY)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found
