"""Requests that are almost right: seeded random mutations of what Atropos clients send.

A request starts out valid. Then its body's values are changed (wrong types, ragged rows, swapped fields), or its
text is (numbers no double holds, duplicate keys, half surrogates, flipped bits), or the way it is sent is (damaged
gzip, headers that lie about the body). Equal generators give equal requests.
"""

import gzip
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.api.atropos_calls import registration
from tests.api.bodies import ODD_VALUES
from tests.api.text_mutations import TEXT_CHANGES, cut_out, flipped_bits, odd_bytes, repeated

Tree = Any

_ENVIRONMENTS = 6


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP/1.1 request, and how far from valid it may be.

    Attributes:
        kind: The endpoint and the mutations that made it, for a failure's message.
        method: HTTP method.
        path: Below the run's base path.
        body: What is sent as the body.
        headers: Header lines; ``Content-Length`` is in them only where it may be wrong.
        well_formed: Whether it is HTTP. If not, the server may answer without problem details, or hang up.
    """

    kind: str
    method: str
    path: str
    body: bytes
    headers: tuple[str, ...] = ("Content-Type: application/json",)
    well_formed: bool = True

    def wire(self, base: str) -> bytes:
        """Spell it for the connection, below ``base``."""
        lines = [f"{self.method} {base}{self.path} HTTP/1.1", "Host: 127.0.0.1", *self.headers]
        if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines):
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode() + self.body


def valid_request(rnd: Random) -> Request:
    """Make a request that is answered 200, of an endpoint chosen at random: most of them submit groups."""
    method, path, make = rnd.choices(_ENDPOINTS, _WEIGHTS)[0]
    return Request(path, method, path, json.dumps(make(rnd)).encode())


def mutated_request(rnd: Random) -> Request:
    """Make a request that differs from a valid one; some are valid all the same."""
    original = valid_request(rnd)
    while True:
        family = rnd.choices((_change_values, _change_text, _change_sending), (45, 40, 15))[0]
        spoilt = family is _change_sending and rnd.random() < 0.4
        request = family(rnd, _change_text(rnd, original) if spoilt else original)
        if request != replace(original, kind=request.kind):
            return request


# What valid clients send


def _group(rnd: Random) -> Tree:
    lengths = [rnd.randint(1, 6) for _ in range(rnd.choice((1, 2, 2, 4, 4, 4, 8)))]
    group: dict[str, Any] = {
        "tokens": [[rnd.randint(0, 200_000) for _ in range(length)] for length in lengths],
        "masks": [[rnd.choice((-100, 5)) for _ in range(length)] for length in lengths],
        "scores": [rnd.uniform(-1, 1) for _ in lengths],
    }
    optional = {
        "advantages": [[rnd.gauss(0, 1)] * length for length in lengths],
        "ref_logprobs": [[-rnd.random()] * length for length in lengths],
        "inference_logprobs": [[1.0] * length for length in lengths],
        "messages": [[{"role": "user", "content": "why?", "name": None}] for _ in lengths],
        "generation_params": {"temperature": 1.0, "stop": ["[", "]"]},
        "overrides": [{"set_advantage_to_zero": True} for _ in lengths],
        "group_overrides": {"a": {"b": [1, 2.5, None]}},
        "images": [["data:image/png;base64,iVBORw0KGgo="]],
        "env_id": rnd.choice((None, 10**6, *range(_ENVIRONMENTS))),
        "distill_token_ids": [[[1, 2]] * length for length in lengths],
        "distill_logprobs": [[[-0.5, -1.5]] * length for length in lengths],
    }
    chosen = rnd.sample(sorted(optional), rnd.choice((0, 1, 3, len(optional))))
    return group | {name: optional[name] for name in chosen}


def _groups(rnd: Random) -> Tree:
    return [_group(rnd) for _ in range(rnd.choice((0, 1, 2, 5)))]


def _trainer(rnd: Random) -> Tree:
    return registration(rnd.choice((8, 64, 256)), starting_step=rnd.choice((0, 7)))


def _environment(rnd: Random) -> Tree:
    return {
        "max_token_length": 512,
        "desired_name": f"env-{rnd.randrange(_ENVIRONMENTS)}",
        "weight": rnd.choice((1.0, -1, 0)),
        "group_size": rnd.choice((1, 4, 8)),
        "min_batch_allocation": rnd.choice((None, 0.1, 0.25)),
    }


def _identifier(rnd: Random) -> Tree:
    return {"env_id": rnd.randrange(2 * _ENVIRONMENTS)}


_ENDPOINTS: tuple[tuple[str, str, Callable[[Random], Tree]], ...] = (
    ("POST", "/scored_data", _group),
    ("POST", "/scored_data_list", _groups),
    ("POST", "/register", _trainer),
    ("POST", "/register-env", _environment),
    ("GET", "/status-env", _identifier),
    ("POST", "/disconnect-env", _identifier),
)
_WEIGHTS = (45, 25, 8, 4, 10, 8)


# Values: the body is still JSON


def _change_values(rnd: Random, request: Request) -> Request:
    tree = json.loads(request.body)
    names = []
    for _ in range(rnd.choice((1, 1, 2, 3))):
        change = rnd.choice(_VALUE_CHANGES)
        tree = change(rnd, tree)
        names.append(change.__name__.strip("_"))
    return replace(request, kind=f"{request.kind} {' '.join(names)}", body=json.dumps(tree).encode())


def _place(rnd: Random, tree: Tree, deeper: float = 0.7) -> tuple[Any, Any]:
    """Choose a container in ``tree`` and a key or position of it; the key is None where it is empty or no container."""
    parent = tree
    while True:
        keys = list(parent if isinstance(parent, dict) else range(len(parent)) if isinstance(parent, list) else ())
        key = rnd.choice(keys) if keys else None
        if key is None or not isinstance(parent[key], dict | list) or rnd.random() > deeper:
            return parent, key
        parent = parent[key]


def _other_type(rnd: Random, tree: Tree) -> Tree:
    parent, key = _place(rnd, tree)
    odd = deepcopy(rnd.choice(ODD_VALUES))
    if key is None:
        return odd
    parent[key] = odd
    return tree


def _negated(rnd: Random, tree: Tree) -> Tree:
    parent, key = _place(rnd, tree, deeper=0.9)
    if key is not None and isinstance(parent[key], int | float):
        parent[key] = -1 - parent[key]
    return tree


def _left_out(rnd: Random, tree: Tree) -> Tree:
    parent, key = _place(rnd, tree)
    if key is not None:
        del parent[key]
    return tree


def _ragged(rnd: Random, tree: Tree) -> Tree:
    parent, key = _place(rnd, tree, deeper=0.9)
    if isinstance(parent, list):
        parent.insert(0 if key is None else key, deepcopy(parent[key]) if parent and rnd.random() < 0.7 else [])
    return tree


def _swapped(rnd: Random, tree: Tree) -> Tree:
    group = rnd.choice(tree) if isinstance(tree, list) and tree else tree
    if isinstance(group, dict) and len(group) > 1:
        one, other = rnd.sample(sorted(group), 2)
        group[one], group[other] = group[other], group[one]
    return tree


def _wrapped(rnd: Random, tree: Tree) -> Tree:
    return rnd.choice(([tree], {"": tree}, [tree] * 3, {"tokens": tree}))


def _many_keys(rnd: Random, tree: Tree) -> Tree:
    parent, key = _place(rnd, tree, deeper=0.3)
    many = {f"{rnd.randrange(10**9)}{n}": n for n in range(rnd.choice((33, 200, 5_000)))}
    if isinstance(parent, dict):
        parent.update(many if key is None or rnd.random() < 0.5 else {key: many})
    return tree


_VALUE_CHANGES = (*(_other_type,) * 4, _negated, _left_out, *(_ragged,) * 2, _swapped, _wrapped, _many_keys)


# Text: the body may no longer be JSON


def _change_text(rnd: Random, request: Request) -> Request:
    change = rnd.choice(TEXT_CHANGES)
    return replace(request, kind=f"{request.kind} {change.__name__}", body=change(rnd, request.body))


# Sending: encodings and headers that may not fit the body


def _change_sending(rnd: Random, request: Request) -> Request:
    change = rnd.choice(_SENDING_CHANGES)
    return replace(change(rnd, request), kind=f"{request.kind} {change.__name__.strip('_')}")


def _with(request: Request, body: bytes, *headers: str, well_formed: bool = True) -> Request:
    return replace(request, body=body, headers=(*request.headers, *headers), well_formed=well_formed)


def _damaged_gzip(rnd: Random, request: Request) -> Request:
    packed = gzip.compress(request.body, mtime=0)
    damage = rnd.choice((flipped_bits, flipped_bits, cut_out, repeated, odd_bytes))
    return _with(request, damage(rnd, packed), "Content-Encoding: gzip")


def _gzip_members(rnd: Random, request: Request) -> Request:
    cut = rnd.randrange(len(request.body) + 1)
    parts = [request.body[:cut], request.body[cut:], *([b""] * rnd.choice((0, 1, 300)))]
    return _with(request, b"".join(gzip.compress(part, mtime=0) for part in parts), "Content-Encoding: gzip")


def _gzip_bomb(rnd: Random, request: Request) -> Request:
    size = rnd.choice((10_000, 1_000_000, 40_000_000)) if rnd.random() < 0.1 else 100_000
    return _with(request, gzip.compress(rnd.choice((b" ", b"[", b"0")) * size, 9, mtime=0), "Content-Encoding: gzip")


def _other_encoding(rnd: Random, request: Request) -> Request:
    coding = rnd.choice(("gzip", "br", "deflate", "gzip, gzip", "identity", "", "x-gzip", "GZIP", "utf-8"))
    body = rnd.choice((request.body, gzip.compress(request.body, mtime=0)))
    return _with(request, body, f"Content-Encoding: {coding}")


def _other_type_header(rnd: Random, request: Request) -> Request:
    kind = rnd.choice(("text/plain", "application/xml", "multipart/form-data", "", "application/json; charset=utf-16"))
    return replace(request, headers=(f"Content-Type: {kind}", f"X-Pad: {'p' * rnd.choice((1, 20_000))}"))


def _chunked(rnd: Random, request: Request) -> Request:
    size = rnd.choice((1, 7, 1000))
    pieces = [request.body[start : start + size] for start in range(0, min(len(request.body), 500 * size), size)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    return _with(request, body, "Transfer-Encoding: chunked")


def _bad_chunks(rnd: Random, request: Request) -> Request:
    bad = rnd.choice((b"zz\r\n", b"-1\r\n{}\r\n0\r\n\r\n", b"5\r\n{}\r\n\r\n", b"ffffffffffffffffff\r\n{}\r\n"))
    return _with(request, bad, "Transfer-Encoding: chunked", well_formed=False)


def _wrong_length(rnd: Random, request: Request) -> Request:
    length = len(request.body)
    wrong = rnd.choice((str(length + 1), str(length // 2), "0", "-1", "1e3", "9" * 30, "268435457", "5, 5", "x"))
    return _with(request, request.body, f"Content-Length: {wrong}", well_formed=False)


def _bad_head(rnd: Random, request: Request) -> Request:
    long = f"Long: {'l' * 40_000}"
    bad = rnd.choice(("no colon", ": no name", "A: \x00", "A: \x7f", "A B: c", long, "Transfer-Encoding: x", "\r"))
    return _with(request, request.body, bad, well_formed=False)


_SENDING_CHANGES = (
    *(_damaged_gzip, _damaged_gzip, _gzip_members, _gzip_bomb, _other_encoding, _other_type_header, _chunked),
    *(_bad_chunks, _wrong_length, _bad_head),
)
