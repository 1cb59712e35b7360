"""What OpenAPI says of curricula beyond the signatures of their routes."""

from typing import Any

from app.api.routes.answer_docs import Answers, reading, sending, with_headers, writing
from app.core import errors
from lachesis.wire.curricula import JSON_LINES

_MISSING = (errors.RunNotFound, errors.CurriculumNotFound)
_ITEM = (*_MISSING, errors.ItemNotFound)
_LINES = {
    "type": "string",
    "description": "A header, a line of JSON for each item, and a last line with their number.",
}
_ATROPOS = {
    "type": "object",
    "description": "The state of Atropos's CurriculumScheduler.",
    "additionalProperties": True,
    "examples": [{"strategy": "easy_first", "n_bins": 5, "item_scores": {"gsm8k/17": [0.4, 3]}}],
}

READS: Answers = reading(*_MISSING)
READS_RUN: Answers = reading(errors.RunNotFound)
READS_ITEM: Answers = reading(*_ITEM)
WRITES: Answers = writing(*_MISSING)
WRITES_ITEM: Answers = writing(*_ITEM)
MAKES: Answers = sending(errors.RunNotFound)
SENDS: Answers = sending(*_MISSING)
SENDS_ITEM: Answers = sending(*_ITEM)
OBSERVES: Answers = sending(*_MISSING) | with_headers(
    200, Idempotent_Replay="`true` if all of them were counted before: nothing was changed."
)
SAMPLES: Answers = sending(*_MISSING) | with_headers(
    200, Idempotent_Replay="`true` if the request had got the items before."
)
SAVES: Answers = reading(*_MISSING) | {200: {"content": {JSON_LINES: {"schema": _LINES}}}}
LOADS: Answers = sending(*_MISSING, errors.UnsupportedMediaType)
TAKES_STATE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {JSON_LINES: {"schema": _LINES}, "application/json": {"schema": _ATROPOS}},
    }
}
