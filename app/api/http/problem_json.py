"""RFC 9457 problem details and their headers, for the application and for the protocol below it."""

from http import HTTPStatus
from math import ceil
from typing import Any

import orjson

from lachesis.wire.errors import ServiceError
from lachesis.wire.printable import printable

PROBLEM_JSON = "application/problem+json"


def retry_after(error: ServiceError) -> str | None:
    """Return the value of ``Retry-After`` for an error: whole seconds, at least 1. None if it names no time."""
    return None if error.retry_after_s is None else str(max(1, ceil(error.retry_after_s)))


def problem_json(error: ServiceError) -> bytes:
    """Return an error as JSON."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "code": error.code,
        "detail": printable(error.detail),
        "remedy": error.remedy,
    }
    if error.errors:
        body["errors"] = error.errors
    return orjson.dumps(body)
