"""Requests to the native API that are almost right: seeded random mutations of blobs and of what trainers send.

A body starts out valid. Then bytes of it are changed, its header says something else than it should, its tensors are
of another kind, or its keys are odd. Equal generators give equal requests.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from lachesis.wire import blob
from lachesis.wire.frame import frame
from tests.api.bodies import ODD_VALUES
from tests.api.mutations import Request
from tests.api.native_groups import parts

BASE = "Content-Type: application/x-safetensors"
_ODD_TEXTS = (
    "",
    " ",
    "-1",
    "1.0",
    "1e3",
    "nan",
    "inf",
    "{",
    "{}",
    '{"a":1e999}',
    "\0",
    "\n",
    "é",
    "a" * 600,
    "9" * 400,
)
_DTYPES = ("<i4", "<i8", "<f4", "<f8", "u1", "?", "<f2", "<u8")
_ODD_NUMBERS = (-1, 0, 1, 7, 2**31, 2**62, 2**63, 2**64, 1.5, True, None, "1", [])
_NAMES = ("", "x", "tokens", "tokens.lengths", "scores.lengths", "details", "__metadata__", "a\0b", "x" * 300, "é")


def group(rnd: Random) -> dict[str, Any]:
    """A valid group."""
    lengths = [rnd.randint(1, 4) for _ in range(rnd.choice((1, 2, 4)))]
    made = {
        "tokens": [[rnd.randint(0, 9)] * n for n in lengths],
        "masks": [[-100] * n for n in lengths],
        "scores": [rnd.random() for _ in lengths],
    }
    more = {
        "advantages": [[0.5] * n for n in lengths],
        "policy_versions": [[rnd.randint(0, 3)] * n for n in lengths],
        "distill_token_ids": [[[1, 2]] * n for n in lengths],
        "messages": [[{"role": "user", "content": "why?"}]],
        "id": f"g{rnd.randrange(10**9)}",
        "item": "item",
        "cost": rnd.random(),
        "metadata": {"a": [1, 2.5]},
        "environment": rnd.randrange(2),
    }
    return made | {name: more[name] for name in rnd.sample(sorted(more), rnd.randint(0, len(more)))}


def mutated_blob(rnd: Random) -> Request:
    """A submission in binary with one to three things wrong; some are right all the same."""
    tensors, metadata = parts(group(rnd))
    names = []
    for _ in range(rnd.choice((0, 0, 1, 1, 2))):
        change = rnd.choice((_other_tensor, _other_key, _without))
        change(rnd, tensors, metadata)
        names.append(change.__name__)
    body = blob.write(tensors, metadata)
    if rnd.random() < 0.3:
        body = frame([body, *(blob.write(*parts(group(rnd))) for _ in range(rnd.randint(0, 2)))], "groups")
    for spoil in rnd.choice(((), (), (_other_header,), (_flipped,), (_cut,), (_other_header, _flipped))):
        body = spoil(rnd, body)
        names.append(spoil.__name__)
    return Request(" ".join(["blob", *names]), "POST", "/groups", body, (BASE,))


def mutated_call(rnd: Random) -> Request:
    """Something else that clients ask, with odd values in it."""
    method, path, body = rnd.choice(_CALLS)
    document = {name: rnd.choice((value, value, rnd.choice(ODD_VALUES))) for name, value in body.items()}
    if rnd.random() < 0.2:
        document[rnd.choice(("odd", "lease", "name", ""))] = rnd.choice(ODD_VALUES)
    number = rnd.choice(("0", "1", "-1", "nan", "9" * 20, "%00", "a" * 32))
    return Request(f"{method} {path}", method, path.format(number), json.dumps(document).encode())


_CALLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PATCH", "", {"batch_size": 4, "max_staleness": 2, "lease_s": 5, "max_queued_groups": None, "max_age_s": 60}),
    ("PUT", "/policy-version", {"policy_version": 2, "rewinds": 0}),
    ("POST", "/checkpoints", {"step": 1, "policy_version": 1, "rewinds": 0}),
    ("POST", "/rewind", {"step": 1}),
    ("POST", "/environments", {"name": "math", "group_size": 2, "min_share": 0.1, "weight": 1.0}),
    ("POST", "/environments", {"name": "math", "member": "m", "max_share": 0.5, "change_settings": True}),
    ("PATCH", "/environments/{}", {"min_share": 0.1, "group_size": 3}),
    ("POST", "/environments/{}/heartbeat", {"member": "m", "running_groups": 3, "start_groups": 1}),
    ("POST", "/batches?wait_s={}", {"request_id": "r", "lease_s": 1, "trainer": "t", "rewinds": 0}),
    ("POST", "/batches/{}/ack", {"lease": "x"}),
    ("POST", "/batches/{}/nack", {"lease": None, "reason": "why\nnot"}),
    ("GET", "/batches/explain?batch_size={}", {}),
    ("GET", "/groups/{}", {}),
    ("GET", "/environments/{}/credits", {}),
    ("GET", "/environments/{}/members?limit=2", {}),
    ("DELETE", "/environments/{}?member=m", {}),
    ("DELETE", "/environments/{}", {}),
)


def _other_tensor(rnd: Random, tensors: dict[str, Any], _: dict[str, str]) -> None:
    name = rnd.choice((*tensors, *(own for own in _NAMES if own != "__metadata__")))
    odd = np.array(rnd.choice(([], [1], [2, 1], [[1]], 3, [0], [-1], [2**31 - 1] * 3)), np.int64)
    with np.errstate(all="ignore"):
        tensors[name] = rnd.choice((odd, tensors.get(name, odd))).astype(rnd.choice(_DTYPES))


def _other_key(rnd: Random, _: dict[str, Any], metadata: dict[str, str]) -> None:
    keys = ("id", "environment", "policy_version", "item", "cost", "metadata", "odd", "lachesis", "format")
    metadata[rnd.choice(keys)] = rnd.choice(_ODD_TEXTS)


def _without(rnd: Random, tensors: dict[str, Any], _: dict[str, str]) -> None:
    del tensors[rnd.choice(sorted(tensors))]
    tensors.setdefault("x", np.ones(1))


def _other_header(rnd: Random, body: bytes) -> bytes:
    """Change what the header says, not what follows."""
    length = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + length])
    entry = header[rnd.choice(sorted(header))]
    what: Callable[[], Any] = lambda: rnd.choice((*_ODD_NUMBERS, *_ODD_TEXTS))  # noqa: E731
    match rnd.randrange(4):
        case 0:
            header[rnd.choice(_NAMES)] = entry
        case 1:
            entry[rnd.choice(("dtype", "shape", "data_offsets", "odd"))] = what()
        case 2 if entry.get("shape"):
            entry["shape"] = [what() for _ in range(rnd.choice((1, 2, 40)))]
        case _:
            entry["data_offsets"] = [what(), what()]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body[8 + length :]


def _flipped(rnd: Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(rnd.choice((1, 3))):
        changed[rnd.randrange(len(changed))] = rnd.randrange(256)
    return bytes(changed)


def _cut(rnd: Random, body: bytes) -> bytes:
    return body[: rnd.randrange(len(body))]
