"""Choose the HTTP protocol: ours, or uvicorn's own if this version of uvicorn lacks names that ours uses."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api.http.connection.certificates import TlsContexts
from app.api.http.connection.refusals import NOT_TLS
from app.api.http.connection.server_protocol import CYCLE_NAMES, PROTOCOL_NAMES, Protocol, TlsProtocol
from app.api.http.connection.tls import TlsConnection

log = logging.getLogger("lachesis.api")


def make_protocol(
    header_timeout_s: float, tls: TlsContexts | None = None
) -> type[asyncio.Protocol] | Literal["httptools"]:
    """Return the protocol for uvicorn's ``http=``."""
    return protocol_unless(missing_state(), header_timeout_s, tls)


def protocol_unless(
    missing: list[str], header_timeout_s: float, tls: TlsContexts | None = None
) -> type[asyncio.Protocol] | Literal["httptools"]:
    """Return our protocol, or uvicorn's own if names are missing."""
    # Partials, since uvicorn sends them to workers by pickle. Its type for them is a class, but it only calls them.
    made: Any = partial(Protocol if tls is None else TlsProtocol, header_timeout_s=header_timeout_s)
    if missing:
        log.warning("this version of uvicorn lacks %s: slow headers do not time out", ", ".join(missing))
        if tls is None:
            return "httptools"
        made = HttpToolsProtocol
    return cast("type[asyncio.Protocol]", made if tls is None else partial(_tls_connection, made, tls))


def _tls_connection(
    http_protocol: Callable[..., asyncio.Protocol], contexts: TlsContexts, *args: Any, **kwargs: Any
) -> TlsConnection:
    return TlsConnection(http_protocol(*args, **kwargs), contexts, NOT_TLS)


def missing_state(protocol: type = HttpToolsProtocol, cycle: type = RequestResponseCycle) -> list[str]:
    """Return the names that `Protocol` uses and uvicorn's classes do not have."""
    used = [(protocol, PROTOCOL_NAMES), (cycle, CYCLE_NAMES)]
    return [f"{cls.__name__}.{name}" for cls, names in used for name in names if name not in _names_of(cls)]


def _names_of(cls: type) -> set[str]:
    """Return the names of a class, and those that its constructor sets."""
    return {*dir(cls), *inspect.getattr_static(cls, "__init__").__code__.co_names}
