"""What can go wrong, as one tree. The API maps each class to a status in one table (`app/api/problems.py`).

    LachesisError
    ├── InvalidInput                the caller's data is wrong: 4xx, nothing was stored
    │   ├── MalformedBody           not the format it claims to be (JSON, gzip, UTF-8)         400
    │   ├── BodyTooLarge            over the limit, as sent or once inflated                   413
    │   ├── UnsupportedEncoding     a Content-Encoding we do not read                          415
    │   ├── RequestTimeout          the body stopped arriving                                  408
    │   └── InvalidField            a value is wrong; `location` says where                    422
    └── StoreUnavailable            Redis did not answer in time; the outcome is unknown       503
        ├── StoreFull               Redis is out of memory; nothing was stored                 507
        ├── StoreRefused            Redis took a command for wrong: look at its keys and ACL   500
        └── StoreMisconfigured      Redis cannot keep our promises; refuse to start

Each class has a stable ``code``; the message says what was wrong with the values.
"""

from typing import ClassVar


class LachesisError(Exception):
    """Something went wrong that a caller can be told about."""

    code: ClassVar[str] = "error"


class InvalidInput(LachesisError):
    """What the caller sent cannot be accepted; nothing was stored."""

    code = "invalid_input"


class MalformedBody(InvalidInput):
    """The body is not the format it claims to be."""

    code = "malformed_body"


class BodyTooLarge(InvalidInput):
    """The body is over the limit, as sent or once inflated."""

    code = "body_too_large"


class UnsupportedEncoding(InvalidInput):
    """The body uses a Content-Encoding that is not read here."""

    code = "unsupported_encoding"


class RequestTimeout(InvalidInput):
    """The body made no progress for too long; nothing was stored."""

    code = "request_timeout"


class InvalidField(InvalidInput):
    """A value in the body is wrong.

    Args:
        message: What is wrong, with the value in it.
        location: Where, as a path from the body's root: field names and 0-based positions.
    """

    code = "invalid_field"

    def __init__(self, message: str, location: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.location = location


class StoreUnavailable(LachesisError):
    """Redis did not answer in time. Whether the last change was made is unknown; ask again."""

    code = "store_unavailable"


class StoreFull(StoreUnavailable):
    """Redis is out of memory. Nothing was stored, nothing is lost; make room or raise ``maxmemory``."""

    code = "store_full"


class StoreRefused(StoreUnavailable):
    """Redis took a command for wrong: a key of another type than ours, or a command its ACL forbids."""

    code = "store_refused"


class StoreMisconfigured(StoreUnavailable):
    """This Redis cannot keep our promises; the message says which setting to change."""

    code = "store_misconfigured"
