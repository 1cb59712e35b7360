"""The JSON of RFC 9457 problem details, for the application and for the protocol below it."""

from http import HTTPStatus
from typing import Any

import orjson

from lachesis.wire.errors import ServiceError
from lachesis.wire.printable import printable

MEDIA_TYPE = "application/problem+json"


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
