"""Replies to requests that reach no route: a head, a body and the end of the connection, ready to be written."""

import http
from functools import cache

from app.api.http.connection.header_limits import MAX_HEADER_BYTES
from app.api.http.problem_json import PROBLEM_JSON, problem_json, retry_after
from app.api.http.security_headers import with_security_headers
from lachesis.wire.errors import BadRequest, HeadersTooLarge, ServiceError, ServiceStopping, TooManyConnections

MAX_PIPELINED = 16
"""Requests that may wait for the reply to an earlier one of their connection. Each takes about 3 kB."""


def _refusal(error: ServiceError) -> bytes:
    body = problem_json(error)
    phrase = http.HTTPStatus(error.status).phrase
    head = f"HTTP/1.1 {error.status} {phrase}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {len(body)}\r\n"
    head += "".join(f"{name.decode()}: {value.decode()}\r\n" for name, value in with_security_headers([]))
    if (seconds := retry_after(error)) is not None:
        head += f"retry-after: {seconds}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


TOO_LARGE = _refusal(HeadersTooLarge(f"the headers are over {MAX_HEADER_BYTES} bytes"))
TOO_FAR_AHEAD = _refusal(
    BadRequest(f"over {MAX_PIPELINED} requests wait for earlier replies on this connection: read the replies first")
)
NOT_HTTP = _refusal(BadRequest("not an HTTP request"))
STOPPING = _refusal(ServiceStopping("the service stopped before the body of the request had arrived"))
NOT_TLS = _refusal(
    BadRequest(
        "this port speaks TLS: use https:// in the URL",
        remedy="Clients need the CA of the certificate, too: LACHESIS_CA_FILE for the SDK.",
    )
)


@cache
def too_many(why: str) -> bytes:
    """Return the reply to a request on a connection that would exceed a limit."""
    return _refusal(TooManyConnections(why))
