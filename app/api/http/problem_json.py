"""The JSON of RFC 9457 problem details, for the application and for the protocol below it."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import orjson

MEDIA_TYPE = "application/problem+json"


def problem_json(
    status: int, code: str, detail: str, problems: Sequence[dict[str, Any]] = (), remedy: str = ""
) -> bytes:
    """Return a problem as JSON. ``problems`` lists wrong values: ``loc`` (path from the body's root) and ``msg``."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
    }
    if remedy:
        body["remedy"] = remedy
    if problems:
        body["errors"] = list(problems)
    return orjson.dumps(body)


def code_of(status: int) -> str:
    """Return the code of a status without an error class in this service, such as ``not_found``."""
    return HTTPStatus(status).phrase.lower().replace(" ", "_")
