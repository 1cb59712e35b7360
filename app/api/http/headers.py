"""Read a header of a request as it came.

Starlette's `Request.headers` copies, decodes and compares all headers. For a submission that was 2 % of the time.
"""

from starlette.types import Scope


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
