"""Media types of requests and replies: what a client sends, and what it accepts (RFC 9110, section 12)."""

from collections.abc import Mapping

from starlette.requests import Request

from app.api.http.headers import header_of
from lachesis.wire.errors import NotAcceptable, UnsupportedMediaType
from lachesis.wire.events import EVENT_STREAM
from lachesis.wire.groups import COMPACT_SAFETENSORS, SAFETENSORS

JSON = "application/json"
_BINARY = (SAFETENSORS, "application/octet-stream")
_ANY = ("application/*", "*/*")
_MOST_SHOWN = 80


def weights(header: str) -> dict[str, float]:
    """Return the weight of each name in a header of the ``Accept`` family.

    Names are in lower case and in the order of the header. Weight 0 means "not accepted".
    """
    found: dict[str, float] = {}
    for item in header.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        if name:
            found.setdefault(name, _weight(parameters))
    return found


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _accepted(request: Request) -> str:
    """Return what the client accepts: anything, if it does not say."""
    return ", ".join(request.headers.getlist("accept")) or "*/*"


def _weight_of_json(named: Mapping[str, float]) -> float:
    return next((named[name] for name in (JSON, *_ANY) if name in named), 0.0)


def accepts_binary(request: Request) -> bool:
    """Return whether to answer in binary: safetensors has the larger weight, or the same weight and comes first.

    Raises:
        NotAcceptable: The client accepts neither safetensors nor JSON.
    """
    accepted = _accepted(request)
    named = weights(accepted)
    order = list(named)

    def preference(*ranges: str) -> tuple[float, int]:
        return next(((named[name], -order.index(name)) for name in ranges if name in named), (0.0, 0))

    binary, json = preference(SAFETENSORS, *_ANY), preference(JSON, *_ANY)
    if not max(binary, json) > (0.0, 0):
        raise NotAcceptable(f"Accept {accepted[:_MOST_SHOWN]!r}; send {JSON} or {SAFETENSORS}")
    return binary > json


def accepts_compact(request: Request) -> bool:
    """Return whether the client knows compact columns (`lachesis.wire.compact`) in safetensors."""
    return COMPACT_SAFETENSORS in _accepted(request).lower().replace(" ", "").split(",")


def accepts_events(request: Request) -> bool:
    """Return whether to answer with server-sent events: the client names them, and gives JSON no larger weight.

    A client that accepts anything gets JSON, which ends.

    Raises:
        NotAcceptable: The client accepts neither server-sent events nor JSON.
    """
    accepted = _accepted(request)
    named = weights(accepted)
    events = named.get(EVENT_STREAM, named.get("text/*", 0.0))
    json = _weight_of_json(named)
    if not max(events, json) > 0:
        raise NotAcceptable(f"Accept {accepted[:_MOST_SHOWN]!r}; send {EVENT_STREAM} or {JSON}")
    return events > 0 and events >= json


def prefers_html(request: Request) -> bool:
    """Return whether ``Accept`` names ``text/html`` with a larger weight than JSON."""
    named = weights(_accepted(request))
    return named.get("text/html", 0.0) > _weight_of_json(named)


def media_type(request: Request, default: str) -> str:
    """Return the media type of a request's body in lower case, without parameters."""
    named = header_of(request.scope, b"content-type")
    return default if named is None else named.decode("latin-1").partition(";")[0].strip().lower()


def sends_binary(request: Request, noun: str) -> bool:
    """Return whether a request's body is safetensors; False for JSON.

    Args:
        request: The request. A body without ``Content-Type`` is JSON.
        noun: What the body holds, for the message.

    Raises:
        UnsupportedMediaType: It is neither.
    """
    sent = media_type(request, JSON)
    if sent not in (JSON, *_BINARY):
        raise UnsupportedMediaType(f"Content-Type {sent[:_MOST_SHOWN]!r}; send {noun} as {JSON} or {SAFETENSORS}")
    return sent in _BINARY
