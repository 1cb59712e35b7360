"""uvicorn's HTTP protocol, with ten additions.

- Limits of open connections, if the application has any (`app.api.http.connection.connections`).
- A deadline and a size limit for headers (`HeaderLimits`).
- A limit of requests that a client sends ahead of their replies (pipelining).
- A refusal of bytes that are not HTTP. The refusal is sent after the replies in progress.
- The ``Upgrade`` header of a request is ignored, so that the body of the request is read.
- A request learns whether its reply was read (`app.api.http.connection.client_connection`).
- Trailers of a chunked body are ignored. They are not headers: they come after these were checked.
- Before a shutdown cancels requests, a body that is still on its way is refused.
- A body that comes in one piece is not copied.
- TLS, which keeps all of these (`app.api.http.connection.tls`). A request learns the certificate of its client.

What a server learns about the end of a connection (measured with uvloop 0.23 on Linux):

    client read everything, then closed          connection_lost(None)
    client closed with anything left unread      connection_lost(ConnectionResetError or BrokenPipeError)
    client half-closed, or closed                eof_received(): the same for both
    and we close our end then                    connection_lost(None) after all written bytes have left

If a client closes with unread data, its kernel sends a reset. So the second line holds for bytes that were written long
before, too, as long as our end is open. It does not hold for replies with ``Connection: close``.

A client that half-closes after a whole request gets its reply. The exception is a reply whose sender must know whether
the reply arrived. After a half-close the sender cannot know this, and most of these clients are gone.

uvicorn documents its protocol as a class to choose, and does not promise the state of the class. Only this module uses
this state. `make_protocol` checks the state. If a new version of uvicorn has changed it, the service logs a warning and
runs with uvicorn's own protocol, without these additions.
"""

import asyncio
import http
import inspect
import logging
from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any, Literal, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api.http.caller import UNIX_SOCKET
from app.api.http.connection.certificates import PEER_CERTIFICATE, TlsContexts, peer_certificate
from app.api.http.connection.client_connection import CLIENT_CONNECTION, ClientConnection
from app.api.http.connection.connections import OPEN_CONNECTION, STATE_KEY, OpenConnection, OpenConnections
from app.api.http.connection.tls import TlsConnection
from app.api.http.connection.transport import GatheringTransport, may_have_unread_data
from app.api.http.problem_json import PROBLEM_JSON, problem_json, retry_after
from app.api.http.security_headers import with_security_headers
from app.core.access.addresses import sender_of_address
from app.logs import LogBackoff
from app.services.access.credentials import PeerCertificate
from lachesis.wire.errors import BadRequest, HeadersTooLarge, ServiceError, ServiceStopping, TooManyConnections

MAX_HEADER_BYTES = 32 * 1024
MAX_PIPELINED = 16
"""Requests that may wait for the reply to an earlier one of their connection. Each takes about 3 kB."""
_SEPARATORS_BYTES = len(": \r\n")
_BODY_GRACE = 0.8  # of the time that requests get to end. The rest is for the refusals
_REFUSED_TIMEOUT_S = 1.0  # for the first bytes of a request that is refused unread

_PROTOCOL_STATE = (
    "app_state",
    "client",
    "config",
    "cycle",
    "headers",
    "loop",
    "parser",
    "pipeline",
    "scope",
    "transport",
)
_PROTOCOL_METHODS = (
    *("connection_made", "connection_lost", "data_received", "eof_received", "shutdown", "on_response_complete"),
    *("on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete"),
)
_CYCLE_STATE = (
    *("body", "disconnected", "keep_alive", "message_event", "more_body", "response_complete", "response_started"),
)

log = logging.getLogger("lachesis.api")
_unparsed = LogBackoff()


def _refusal(error: ServiceError) -> bytes:
    body = problem_json(error)
    phrase = http.HTTPStatus(error.status).phrase
    head = f"HTTP/1.1 {error.status} {phrase}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {len(body)}\r\n"
    head += "".join(f"{name.decode()}: {value.decode()}\r\n" for name, value in with_security_headers([]))
    if (seconds := retry_after(error)) is not None:
        head += f"retry-after: {seconds}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


_TOO_LARGE = _refusal(HeadersTooLarge(f"the headers are over {MAX_HEADER_BYTES} bytes"))
_TOO_FAR_AHEAD = _refusal(
    BadRequest(f"over {MAX_PIPELINED} requests wait for earlier replies on this connection: read the replies first")
)
_NOT_HTTP = _refusal(BadRequest("not an HTTP request"))
_STOPPING = _refusal(ServiceStopping("the service stopped before the body of the request had arrived"))
_NOT_TLS = _refusal(BadRequest("this port speaks TLS: use https:// in the URL"))


@cache
def _too_many(why: str) -> bytes:
    return _refusal(TooManyConnections(why))


def make_protocol(
    header_timeout_s: float, tls: TlsContexts | None = None
) -> type[asyncio.Protocol] | Literal["httptools"]:
    """Return the protocol for uvicorn's ``http=``."""
    return protocol_unless(missing_state(), header_timeout_s, tls)


def protocol_unless(
    missing: list[str], header_timeout_s: float, tls: TlsContexts | None = None
) -> type[asyncio.Protocol] | Literal["httptools"]:
    """Return this module's protocol, or uvicorn's own if names are missing."""
    # Partials, since uvicorn sends them to workers by pickle.
    made: Any = partial(Protocol if tls is None else _TlsProtocol, header_timeout_s=header_timeout_s)
    if missing:
        log.warning("this version of uvicorn lacks %s: slow headers do not time out", ", ".join(missing))
        if tls is None:
            return "httptools"
        made = HttpToolsProtocol
    return cast("type[asyncio.Protocol]", made if tls is None else partial(_tls_connection, made, tls))


def _tls_connection(
    http_protocol: Callable[..., asyncio.Protocol], contexts: TlsContexts, *args: Any, **kwargs: Any
) -> TlsConnection:
    return TlsConnection(http_protocol(*args, **kwargs), contexts, _NOT_TLS)


def missing_state(protocol: type = HttpToolsProtocol, cycle: type = RequestResponseCycle) -> list[str]:
    """Return the names that this module uses and uvicorn's classes do not have."""
    used = [(protocol, (*_PROTOCOL_STATE, *_PROTOCOL_METHODS)), (cycle, _CYCLE_STATE)]
    return [f"{cls.__name__}.{name}" for cls, names in used for name in names if name not in _names_of(cls)]


def _names_of(cls: type) -> set[str]:
    """Return the names of a class, and those that its constructor sets."""
    return {*dir(cls), *inspect.getattr_static(cls, "__init__").__code__.co_names}


class HeaderLimits:
    """The deadline and the maximum size of a request's headers.

    Args:
        loop: The event loop.
        timeout_s: Seconds from the first sign of a request to the end of its headers.
        late: Called when the time is over.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float, late: Callable[[], None]) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._late = late
        self._timer: asyncio.TimerHandle | None = None
        self._parsed_bytes = 0
        self._unparsed_bytes = 0
        self.too_large = False

    @property
    def expecting(self) -> bool:
        """Return whether the time is running."""
        return self._timer is not None

    def expect(self) -> None:
        """Start the time for the headers of a request."""
        self._unparsed_bytes = 0
        self._timer = self._loop.call_later(self._timeout_s, self._end)

    def stop(self) -> None:
        """Stop the time, because the headers are complete or the connection ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def begin(self) -> None:
        """Start counting the bytes of the next request."""
        self._parsed_bytes = self._unparsed_bytes = 0

    def count_parsed(self, size: int) -> None:
        """Count bytes that the parser passed on.

        Raises:
            ValueError: The headers are too large. The parser stops.
        """
        self._parsed_bytes += size
        if self._parsed_bytes > MAX_HEADER_BYTES:
            self.too_large = True
            raise ValueError("headers too large")

    def count_received(self, size: int) -> bool:
        """Count received bytes of an unfinished header, which the parser holds back. Return whether they fit."""
        self._unparsed_bytes += size
        return self._unparsed_bytes <= MAX_HEADER_BYTES

    def _end(self) -> None:
        self._timer = None
        self._late()


class Protocol(HttpToolsProtocol):
    """One HTTP connection."""

    def __init__(self, *args: Any, header_timeout_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timeout_s = header_timeout_s
        self._unfinished: ClientConnection | None = None  # of the request whose headers are not complete
        self._unread: list[ClientConnection] = []  # of replies that the client may not have read
        self._receiving = False  # from a request's first byte to its body's last, maybe after an early reply
        self._url = b""  # of the request that is read
        self._upgrading = False
        self._is_too_far_ahead = False
        self._open: OpenConnection | None = None  # if connections are counted
        self._turned_away = b""  # the answer, if there are too many connections
        self._refusal = b""  # to be sent after the replies under way

    @property
    def _replying(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete  # None before the first request

    @property
    def _in_body(self) -> bool:
        return self._replying and self.cycle.more_body and not self.cycle.response_started

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._writer = GatheringTransport(transport, self.loop)
        super().connection_made(self._writer)
        # To close with unread data would reset the connection, and the client would not see the reply.
        self._turned_away = self._enter()
        timeout_s = min(_REFUSED_TIMEOUT_S, self._header_timeout_s) if self._turned_away else self._header_timeout_s
        self._limits = HeaderLimits(self.loop, timeout_s, self._writer.close)
        self._limits.expect()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._open is not None:
            self._open.leave()
        self._limits.stop()
        if exc is not None or self._replying:
            self._break_unread()
        self._unread.clear()
        super().connection_lost(exc)

    def _enter(self) -> bytes:
        """Count this connection. Return the refusal, if it would exceed a limit."""
        connections: OpenConnections | None = self.app_state.get(STATE_KEY)
        if connections is None:
            return b""
        entered = connections.enter(sender_of_address(self._address))
        if not isinstance(entered, OpenConnection):
            return _too_many(connections.refusals[entered])
        self._open = entered
        return b""

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else UNIX_SOCKET

    def eof_received(self) -> bool:  # type: ignore[override]
        self._writer.flush()  # a reply of this turn must be on its way before the connection is asked about it
        # A client that gives up around the time of its reply closes cleanly, and then our end closes, too. In 1 % of
        # these cases the reply is not sent yet, or is sent and not read. Only this check shows it: no event follows.
        if self._replying or may_have_unread_data(self.transport.get_extra_info("socket")):
            self._break_unread()
        if not self._replying or self.cycle.more_body:
            return False
        self.cycle.keep_alive = False
        return True  # our end closes after the reply

    def shutdown(self) -> None:
        for connection in self._unread:
            connection.shut_down()
        super().shutdown()
        if self._in_body and (grace_s := self.config.timeout_graceful_shutdown) is not None:
            self.loop.call_later(_BODY_GRACE * grace_s, self._refuse_unfinished)

    def _refuse_unfinished(self) -> None:
        if self._in_body and not self.transport.is_closing():
            self._refuse(_STOPPING)

    def on_response_complete(self) -> None:
        more = bool(self.pipeline)
        super().on_response_complete()
        if self._refusal and not more:
            self._send_refusal()

    def _break_unread(self) -> None:
        for connection in self._unread:
            connection.break_off(self.loop)
        self._unread.clear()

    def _give_up_reply(self) -> None:
        if self._replying:
            self.cycle.disconnected = True  # before the connection is lost, so that nothing more is written
            self.cycle.message_event.set()
        self.transport.close()

    # What comes in

    def data_received(self, data: bytes) -> None:
        if self._refusal:
            return
        if self._turned_away:
            self._refuse(self._turned_away)
            return
        super().data_received(b"")  # ends the time that an idle connection may stay
        before = self._unfinished
        self._parse(data)
        in_body = self._receiving and self._unfinished is None
        if not (self._limits.expecting or self._replying or in_body):
            self._limits.expect()
        goes_on = before is not None and before is self._unfinished  # maybe after a request that is being answered
        unfinished = self._limits.expecting or goes_on
        if unfinished and not self.transport.is_closing() and not self._limits.count_received(len(data)):
            self._refuse(_TOO_LARGE)

    def _parse(self, data: bytes) -> None:
        try:
            while data:
                data = self._parse_to_upgrade(data)
        except httptools.HttpParserError:
            what, refusal = "what is not HTTP", _NOT_HTTP
            if self._limits.too_large:
                what, refusal = f"headers over {MAX_HEADER_BYTES} bytes", _TOO_LARGE
            elif self._is_too_far_ahead:
                what, refusal = "requests too far ahead of their replies", _TOO_FAR_AHEAD
            if _unparsed.is_due(what):
                log.warning("refused %s", what, extra={"fields": {"caller": self._address}})
            self._refuse(refusal)

    def _parse_to_upgrade(self, data: bytes) -> bytes:
        """Parse up to the end of headers that ask for an upgrade. Return the bytes after these headers."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._upgrading:
                return b""  # CONNECT: what follows is not HTTP
            self._upgrading = False
            head = self._head_without_upgrade()
            # Of a request that also says `Connection: close`, the old parser would ignore all that follows.
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self.parser.feed_data(head)
            return data[upgrade.args[0] :]
        return b""

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self._url, version)]
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, refusal: bytes) -> None:
        """Refuse the last bytes and end the connection, after the replies to the whole requests before them."""
        self._limits.stop()
        self._refusal = refusal
        if self._in_body and self.pipeline:
            self.pipeline.popleft()  # the request with the broken body waits for its turn: drop it
        elif self._in_body or not self._replying:
            self._send_refusal()

    def _send_refusal(self) -> None:
        self.transport.write(self._refusal)
        self._give_up_reply()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            self._is_too_far_ahead = True
            raise ValueError("too many requests ahead of their replies")  # the parser stops
        super().on_message_begin()
        self._url = b""
        self._receiving = True
        self._limits.begin()
        if not self._replying:
            # The client asks for more, so it has read the replies before (unless it asks ahead).
            self._unread.clear()
        connection = self._unfinished = ClientConnection(
            self._give_up_reply, self._writer.get_write_buffer_size, self._writer.abort
        )
        self._unread.append(connection)
        scope = cast("dict[str, Any]", self.scope)
        scope[CLIENT_CONNECTION], scope[OPEN_CONNECTION] = connection, self._open

    def on_url(self, url: bytes) -> None:
        self._limits.count_parsed(len(url))
        self._url += url
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._limits.count_parsed(len(name) + len(value) + _SEPARATORS_BYTES)
        if self._unfinished is not None:  # else a trailer of a chunked body, which uvicorn would add to the headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._limits.stop()
        self._unfinished = None
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._upgrading = True
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        held: bytes | bytearray = self.cycle.body
        if not held:  # uvicorn would copy a body that comes in one piece into a bytearray, and then back
            self.cycle.body = cast("bytearray", body)
            body = b""
        elif isinstance(held, bytes):
            self.cycle.body = bytearray(held)  # many pieces grow in place
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
        self._receiving = False
        cast("dict[str, Any]", self.scope)[CLIENT_CONNECTION].request_arrived = True
        super().on_message_complete()


class _TlsProtocol(Protocol):
    """One HTTP connection over TLS. Each request learns the certificate of its client."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)[PEER_CERTIFICATE] = self._certificate

    @cached_property
    def _certificate(self) -> PeerCertificate | None:
        return peer_certificate(self.transport.get_extra_info("ssl_object"))
