"""Read a header of a request as it came.

Starlette's `Request.headers` decodes all headers before it compares them. It takes two to four times as long.
"""

import reprlib

from starlette.types import Scope

from lachesis.wire.errors import MalformedBody

_MOST_DIGITS = 20  # more than any limit has; Python reads no number of thousands of digits


def header_of(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of a header; None if it is missing. Of several, the first counts.

    Args:
        scope: The scope of the request.
        name: The name in lower case.
    """
    for found, value in scope["headers"]:
        if found == name:
            return bytes(value)
    return None


def headers_of(scope: Scope, name: bytes) -> list[bytes]:
    """Return the values of all headers with a name, which is in lower case."""
    return [value for found, value in scope["headers"] if found == name]


def content_length(scope: Scope) -> int | None:
    """Return the size of the body that a request announces; None if it announces none.

    Raises:
        MalformedBody: It is not a number.
    """
    given = header_of(scope, b"content-length")
    if given is None:
        return None
    if not given.isdigit():
        raise MalformedBody(f"Content-Length {reprlib.repr(given.decode('latin-1'))}: send a whole number")
    return int(given.lstrip(b"0")[:_MOST_DIGITS] or b"0")
