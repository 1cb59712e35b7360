"""What OpenAPI says of the native API beyond its signatures: groups and batches in binary."""

from typing import Any

from app.api.routes import body_docs
from app.api.routes.atropos_docs import GROUP
from lachesis.wire.groups import SAFETENSORS

_BLOB = {"type": "string", "format": "binary", "description": "One group's blob, or a frame of them (docs/api.md)."}
_EXAMPLE: dict[str, Any] = {key: value for key, value in GROUP.items() if value is not None and key != "env_id"} | {
    "id": "0197b6c2-6f0e-7cc1-b1c5-2f3a9d1e8a77",
    "environment": 0,
    "policy_version": 41,
    "item": "gsm8k/17",
}
_GROUP = {
    "type": "object",
    "required": ["tokens", "masks", "scores"],
    "description": "Columns as in ScoredData, and what the group says of itself (docs/api.md).",
    "properties": {
        "id": {"type": "string"},
        "environment": {"type": "integer", "minimum": 0},
        "policy_version": {"type": "integer", "minimum": 0},
        "tokens": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "masks": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "scores": {"type": "array", "items": {"type": "number"}},
    },
}
_GROUPS = {"type": "object", "required": ["groups"], "properties": {"groups": {"type": "array", "items": _GROUP}}}

TAKES_GROUPS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"anyOf": [_GROUP, _GROUPS], "examples": [_EXAMPLE, {"groups": [_EXAMPLE]}]},
            },
            SAFETENSORS: {"schema": _BLOB},
        },
    }
}
ANSWERS_TAKE: dict[int | str, dict[str, Any]] = {
    201: {"content": {SAFETENSORS: {"schema": _BLOB}}},
    204: {"description": "No batch in time; `Lachesis-Waiting` says why, `Lachesis-Expected-S` when."},
}
PROBLEMS: dict[int | str, dict[str, Any]] = body_docs.PROBLEMS | {
    404: {"description": "There is no such run, environment, group or batch."},
    409: {"description": "Right in itself, but not as things stand; nothing was changed."},
    415: {"description": "A Content-Type that is not read here, or a Content-Encoding other than gzip."},
}
ANSWERS_SUBMIT: dict[int | str, dict[str, Any]] = {
    429: {"description": "The run holds as much as it may; come back after `Retry-After`."}
}
