"""Read and write annotations of groups in JSON."""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from app.api.codec.atropos_batch import column_rows
from app.api.codec.json_columns import read_column
from app.api.codec.json_reader import OBJECTS, as_object, check_known, described, members, parse_json
from app.core.groups.annotations import ANNOTATIONS, Rows
from app.store.groups.annotations import Annotations
from lachesis.wire.columns import Column, Ragged
from lachesis.wire.errors import InvalidField, MalformedBody
from lachesis.wire.groups import ANNOTATION_NAME
from lachesis.wire.limits import MAX_ANNOTATIONS


def decode_annotations(body: bytes) -> dict[str, Rows]:
    """Read ``{"annotations": {name: rows}}``.

    Raises:
        MalformedBody: It is not JSON, or JSON that readers understand differently.
        InvalidField: A name or a value is wrong, or a field unknown.
    """
    document = parse_json(body)
    if not isinstance(document, OBJECTS):
        raise MalformedBody(f"expected a JSON object, not {described(document)}")
    fields = dict(members(document, ()))
    check_known(fields, {ANNOTATIONS}, ())
    rows = dict(members(as_object(fields.get(ANNOTATIONS), (ANNOTATIONS,)), (ANNOTATIONS,)))
    if not 1 <= len(rows) <= MAX_ANNOTATIONS:
        raise InvalidField(f"{len(rows)} annotations; send 1 to {MAX_ANNOTATIONS}", (ANNOTATIONS,))
    for name in rows:
        if not re.fullmatch(ANNOTATION_NAME, name):
            raise InvalidField("invalid name: use 1 to 32 of a-z, 0-9 and _, a letter first", (ANNOTATIONS, name))
    return {name: _rows(name, value) for name, value in rows.items()}


def _rows(name: str, value: Any) -> Rows:
    read = read_column(Column(name, "float", 2), value, (ANNOTATIONS, name))
    (lengths,) = read.lengths
    return Rows(read.values, lengths)


def annotations_json(group: str, annotations: Annotations) -> bytes:
    """Write the annotations of a group."""
    return orjson.dumps(
        {
            "id": group,
            "lengths": annotations.lengths,
            ANNOTATIONS: rows_of(annotations.values),
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def rows_of(values: Mapping[str, Ragged]) -> dict[str, object]:
    """Return the rows of annotations for orjson."""
    return {name: column_rows(ragged) for name, ragged in values.items()}
