"""Write stored groups as the JSON that Atropos trainers read (`lachesis.wire.atropos.ServedBatch`).

The JSON is written from arrays, without a Python object per number. Tests compare every reply with the model.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from app.api.codec.group_details import completed
from lachesis.wire.columns import COLUMNS, Ragged, nested, unpack


def group_json(payload: bytes) -> bytes:
    """Return a group as a JSON object with all 14 keys of ``ScoredData``, null where the group has none.

    Args:
        payload: A blob written by `lachesis.wire.columns.pack`.

    Returns:
        Minified JSON in UTF-8. Every number reads back equal to the one that came in.
    """
    group = unpack(payload)
    rows = {column.name: column_rows(group.columns.get(column.name)) for column in COLUMNS}
    numbers = orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)
    # Groups of the Atropos surface have no keys of their own, and their details are complete.
    details = group.details
    if group.metadata:
        environment = group.metadata.get("environment")
        details = completed(details, None if environment is None else int(environment))
    return numbers[:-1] + b"," + details[1:]


def batch_json(payloads: Sequence[bytes]) -> bytes:
    """Return the groups of a batch, in order, as ``{"batch": [group, ...]}``."""
    return b'{"batch":[' + b",".join(map(group_json, payloads)) + b"]}"


def column_rows(column: Ragged | None) -> Any:
    """Return a column's rows for orjson. Every number reads back equal to the one that was sent."""
    if column is None:
        return None
    if column.values.dtype == np.float32:  # the shortest digits of an f32 read back as another f64
        column = Ragged(column.values.astype(np.float64), column.lengths)
    return nested(column)
