"""The errors that any request may get, and the roots of those about one noun."""

from collections.abc import Sequence

from lachesis.wire.errors._base import ServiceError
from lachesis.wire.problems import place, wrong_value


class InvalidInput(ServiceError):
    """The service cannot accept the request. Nothing was stored."""

    code, status = "invalid_input", 422
    remedy = "Correct the request and send it again."


class MalformedBody(InvalidInput):
    """The body is not in the format that its headers name."""

    code, status = "malformed_body", 400
    remedy = "Send the body in the format of its Content-Type and Content-Encoding."


class BadRequest(InvalidInput):
    """The bytes on the connection are not an HTTP request. The service closes the connection."""

    code, status = "bad_request", 400
    remedy = "Send HTTP on a new connection, in plain text or through a proxy that ends TLS."


class MethodNotAllowed(InvalidInput):
    """The path exists, and does not take this method. The `Allow` header lists the methods that it takes."""

    code, status = "method_not_allowed", 405
    remedy = "Use one of the methods that the message names."


class HeadersTooLarge(InvalidInput):
    """The request line and headers exceed the size limit. The service closes the connection."""

    code, status = "request_header_fields_too_large", 431
    remedy = "Send shorter headers, cookies and query parameters on a new connection."


class BodyTooLarge(InvalidInput):
    """The body exceeds the size limit, as sent or decompressed."""

    code, status = "body_too_large", 413
    remedy = "Send less in one request. If the limit is LACHESIS_MAX_BODY_BYTES of the service, you can raise it."


class UnsupportedEncoding(InvalidInput):
    """The service does not read this Content-Encoding."""

    code, status = "unsupported_encoding", 415
    remedy = "Send the body as it is, or with one layer of gzip."


class UnsupportedMediaType(InvalidInput):
    """The service does not read this Content-Type at this path."""

    code, status = "unsupported_media_type", 415
    remedy = "Send one of the types that the message names."


class NotAcceptable(InvalidInput):
    """The service has no reply in a type that the request accepts."""

    code, status = "not_acceptable", 406
    remedy = "Accept one of the types that the message names."


class RequestTimeout(InvalidInput):
    """The body stopped arriving, or was slow while others waited for memory. Nothing was stored."""

    code, status = "request_timeout", 408
    remedy = "Send the request again. If the network is slow, raise the setting that the message names."
    retry_after_s = 2.0


class InvalidField(InvalidInput):
    """A value in the body, the path or the query is wrong. The SDK raises this before sending where it can.

    Args:
        message: What is wrong, with the value.
        location: Where: the path from the body's root, field names and positions from 0; of a parameter, ``query`` or
            ``path`` and its name.
    """

    code = "invalid_field"
    remedy = "Correct the value. `errors` names its place."
    _detail_says_all = True  # it names the place and the value

    def __init__(self, message: str, location: Sequence[str | int] = ()) -> None:
        wrong = wrong_value(message, location)
        super().__init__(f"{place(wrong['loc'])}: {wrong['msg']}" if location else message)
        if location:
            self.errors = (wrong,)

    @property
    def message(self) -> str:
        """What is wrong with the value, without its place."""
        return str(self.errors[0]["msg"]) if self.errors else self.detail

    @property
    def location(self) -> tuple[str | int, ...]:
        """The place of the value; empty if the whole body is wrong."""
        return tuple(self.errors[0]["loc"]) if self.errors else ()


class NotFound(ServiceError):
    """No endpoint exists at this path, or no object with this name or id."""

    code, status = "not_found", 404
    remedy = "Check the path, name or id. `/docs` lists all endpoints."


class Conflict(ServiceError):
    """The request does not fit the present state. Nothing was changed."""

    code, status = "conflict", 409
    remedy = "Read the present state and send a request that fits it."


class TooManyConnections(ServiceError):
    """The service, an address, a token or a run has too many open connections. The service closes this one."""

    code, status, retry_after_s = "too_many_connections", 429, 5.0
    remedy = "Close idle connections, or raise the setting that the message names."


class TooManyReads(ServiceError):
    """Replies with contents of groups or fragments, which clients have not yet taken, fill the memory for them."""

    code, status, retry_after_s = "too_many_reads", 429, 5.0
    remedy = "Read each reply to its end before you ask for the next, and ask for fewer contents at a time."


class RateLimited(ServiceError):
    """The token or the run sends more per second than a limit allows. Nothing was stored."""

    code, status, retry_after_s = "rate_limited", 429, 1.0
    remedy = "Send the request again after `Retry-After`. If this lasts, send less, or raise the limit."

    def __init__(self, detail: str, retry_after_s: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
