"""What OpenAPI says of groups and batches beyond the signatures of their routes: binary bodies, headers, problems."""

from typing import Any

from app.api.routes.answer_docs import Answers, sending, with_headers
from app.core import errors
from lachesis.wire.groups import SAFETENSORS, SubmittedGroup, SubmittedGroups

_BLOB = {
    "type": "string",
    "format": "binary",
    "description": "One group as a blob, or several as a frame.",
}
_BATCH = {
    "type": "string",
    "format": "binary",
    "description": "The batch as one file of columns.",
}
_FORMS = (SubmittedGroup, SubmittedGroups)

TAKES_GROUPS: dict[str, Any] = {
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
ANSWERS_SUBMIT: Answers = sending(
    errors.RunNotFound,
    errors.UnsupportedMediaType,
    errors.RunArchived,
    errors.GroupExists,
    errors.QueueFull,
    errors.SequenceTooLong,
) | with_headers(201, Idempotent_Replay="`true` if every group was there already: nothing was stored.")

_TAKEN = with_headers(
    201,
    Lachesis_Batch="The batch's id.",
    Lachesis_Step="Its step.",
    Lachesis_Imbalance="Of a batch that is divided between ranks: its largest load over the mean load, minus 1.",
)
_WAITING = with_headers(
    204,
    Lachesis_Waiting="Why there is none: the reason as in `explain`, and a sentence.",
    Lachesis_Expected_S="In how many seconds one should form at the present arrival rates; absent if unknown.",
)
_REFUSED = (
    errors.RunNotFound,
    errors.NotAcceptable,
    errors.RunArchived,
    errors.RunRewound,
    errors.RanksDisagree,
    errors.StepMismatch,
    errors.SequenceTooLong,
)
ANSWERS_TAKE: Answers = sending(*_REFUSED) | {
    201: _TAKEN[201] | {"content": {SAFETENSORS: {"schema": _BATCH}}},
    204: _WAITING[204] | {"description": "No batch in time."},
}
