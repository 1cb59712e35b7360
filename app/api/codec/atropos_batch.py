"""Write stored groups as the JSON that Atropos trainers read (`lachesis.wire.atropos.ServedBatch`).

The JSON is written from arrays, without a Python object per number. Tests compare every reply with the model.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import orjson

from app.api.codec.group_details import completed
from lachesis.wire.blob import Buffer
from lachesis.wire.columns import COLUMNS, Ragged, nested, unpack


def batch_json(payloads: Sequence[bytes]) -> Iterator[Buffer]:
    """Write the groups of a batch, in order, as ``{"batch": [group, ...]}``, part by part.

    Args:
        payloads: Blobs written by `lachesis.wire.columns.pack`.

    Yields:
        Minified JSON in UTF-8. Every number reads back equal to the one that came in.
    """
    yield b'{"batch":['
    yield from comma_separated(map(_group, payloads))
    yield b"]}"


def group_json(payload: bytes) -> bytes:
    """Return a group as a JSON object with all 14 keys of ``ScoredData``, null where the group has none."""
    return b"".join(_group(payload))


def _group(payload: bytes) -> list[Buffer]:
    group = unpack(payload)
    rows = {column.name: column_rows(group.columns.get(column.name)) for column in COLUMNS}
    numbers = orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)
    # Groups of the Atropos surface have no keys of their own, and their details are complete.
    details = group.details
    if group.metadata:
        environment = group.metadata.get("environment")
        details = completed(details, None if environment is None else int(environment))
    return merged(numbers, details)


def merged(*objects: bytes) -> list[Buffer]:
    """Write JSON objects as one that has the keys of all. Nothing is copied."""
    inner = [memoryview(written)[1:-1] for written in objects if written != b"{}"]
    return [b"{", *(part for n, body in enumerate(inner) for part in ((b",", body) if n else (body,))), b"}"]


def comma_separated(values: Iterable[Iterable[Buffer]]) -> Iterator[Buffer]:
    """Put commas between JSON values, each in parts."""
    for n, parts in enumerate(values):
        if n:
            yield b","
        yield from parts


def column_rows(column: Ragged | None) -> Any:
    """Return a column's rows for orjson. Every number reads back equal to the one that was sent."""
    if column is None:
        return None
    if column.values.dtype == np.float32:  # the shortest digits of an f32 read back as another f64
        column = Ragged(column.values.astype(np.float64), column.lengths)
    return nested(column)
