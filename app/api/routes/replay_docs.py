"""What OpenAPI says of the replay buffer beyond the signatures of its routes."""

from typing import Any

from app.api.routes.answer_docs import Answers, reading, sending, with_headers, writing
from app.core import errors
from lachesis.wire.fragments import SubmittedFragment, SubmittedFragments
from lachesis.wire.groups import SAFETENSORS

_MISSING = (errors.RunNotFound, errors.ReplayNotFound)
_BLOB = {
    "type": "string",
    "format": "binary",
    "description": "One fragment's blob, or a frame of them (docs/how-to/replay.md).",
}
_BINARY = {"content": {SAFETENSORS: {"schema": _BLOB}}}
_FORMS = (SubmittedFragment, SubmittedFragments)

READS: Answers = reading(*_MISSING)
WRITES: Answers = writing(*_MISSING)
SENDS: Answers = sending(*_MISSING)
MAKES: Answers = sending(errors.RunNotFound)
RESTORES: Answers = sending(*_MISSING, errors.SnapshotNotFound)
DROPS_SNAPSHOT: Answers = writing(*_MISSING, errors.SnapshotNotFound)

TAKES_FRAGMENTS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [{"$ref": f"#/components/schemas/{form.__name__}"} for form in _FORMS],
                    "examples": [example for form in _FORMS for example in form.model_json_schema()["examples"]],
                },
            },
            SAFETENSORS: {"schema": _BLOB},
        },
    }
}
INSERTS: Answers = sending(
    *_MISSING, errors.UnsupportedMediaType, errors.FragmentExists, errors.ReplayBlocked
) | with_headers(201, Idempotent_Replay="`true` if every fragment was there already: nothing was stored.")
READS_FRAGMENT: Answers = reading(*_MISSING, errors.FragmentNotFound) | {200: _BINARY}
FETCHES: Answers = sending(*_MISSING, errors.FragmentNotFound) | {200: _BINARY}

_SAMPLE = {"Lachesis_Sample": "The sample's id."}
_WAITING = with_headers(204, Lachesis_Waiting="What it waits for, and a sentence.")
TAKES_SAMPLE: Answers = sending(*_MISSING, errors.SampleNotFound, errors.FragmentNotFound, errors.NotAcceptable) | {
    201: with_headers(201, **_SAMPLE)[201] | _BINARY,
    204: _WAITING[204] | {"description": "No sample in time."},
}
SHOWS_SAMPLE: Answers = reading(*_MISSING, errors.SampleNotFound, errors.FragmentNotFound, errors.NotAcceptable) | {
    200: with_headers(200, **_SAMPLE)[200] | _BINARY,
}
ENDS_SAMPLE: Answers = sending(*_MISSING, errors.SampleNotFound, errors.LeaseLost)
