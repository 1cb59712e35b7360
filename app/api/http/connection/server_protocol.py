"""uvicorn's HTTP protocol, with eleven additions.

- Limits of open connections, if the application has any (`app.api.http.connection.connections`).
- A deadline and a size limit for headers (`HeaderLimits`).
- A limit of requests that a client sends ahead of their replies (pipelining).
- A refusal of bytes that are not HTTP. The refusal is sent after the replies in progress.
- The ``Upgrade`` header of a request is ignored, so that the body of the request is read.
- A request learns whether its reply was read (`app.api.http.connection.client_connection`).
- Trailers of a chunked body are ignored. They are not headers: they come after these were checked.
- Before a shutdown cancels requests, a body that is still on its way is refused.
- A body that continues after its reply, such as a refusal, may pause as long as a connection may be idle.
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
this state. `make_protocol` in `app.api.http.connection.protocol_factory` checks the state. If a new version of uvicorn
has changed it, the service logs a warning and runs with uvicorn's own protocol, without these additions.
"""

import asyncio
import logging
from functools import cached_property
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.http.caller import UNIX_SOCKET
from app.api.http.connection.certificates import PEER_CERTIFICATE, peer_certificate
from app.api.http.connection.client_connection import CLIENT_CONNECTION, ClientConnection
from app.api.http.connection.connections import OPEN_CONNECTION, STATE_KEY, OpenConnection, OpenConnections
from app.api.http.connection.header_limits import MAX_HEADER_BYTES, HeaderLimits
from app.api.http.connection.refusals import MAX_PIPELINED, NOT_HTTP, STOPPING, TOO_FAR_AHEAD, TOO_LARGE, too_many
from app.api.http.connection.transport import GatheringTransport, may_have_unread_data
from app.core.access.addresses import sender_of_address
from app.logs import LogBackoff
from app.services.access.credentials import PeerCertificate

PROTOCOL_NAMES = (
    *("app_state", "client", "config", "cycle", "headers", "loop", "parser", "pipeline", "scope", "transport"),
    *("connection_made", "connection_lost", "data_received", "eof_received", "shutdown", "on_response_complete"),
    *("on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete"),
    *("timeout_keep_alive", "timeout_keep_alive_handler", "timeout_keep_alive_task"),
)
"""What `Protocol` uses of uvicorn's protocol."""
CYCLE_NAMES = (
    *("body", "disconnected", "keep_alive", "message_event", "more_body", "response_complete", "response_started"),
)
"""What `Protocol` uses of uvicorn's request cycle."""

_SEPARATORS_BYTES = len(": \r\n")
_BODY_GRACE = 0.8  # share of the grace time in which bodies may still arrive; the rest is for refusals
_REFUSED_TIMEOUT_S = 1.0  # for the first bytes of a request that is refused unread

log = logging.getLogger("lachesis.api")
_unparsed = LogBackoff()


class Protocol(HttpToolsProtocol):
    """One HTTP connection.

    Of uvicorn's state, ``cycle`` is the latest request with complete headers. Its reply may have to wait for others.

        flag                set by                           cleared by
        _unfinished         on_message_begin                 on_headers_complete
        _receiving          on_message_begin                 on_message_complete, not by an early reply
        _url                on_url                           on_message_begin
        _upgrading          on_headers_complete              _parse_to_upgrade, which parses the headers again
        _unread             on_message_begin                 on_message_begin, connection_lost, _break_unread
        _limits.is_timing   connection_made, data_received   on_headers_complete, connection_lost, _refuse, and its end
        _open               connection_made                  never
        _turned_away        connection_made                  never: the first bytes are refused
        _is_too_far_ahead   on_message_begin                 never: the parser has stopped
        _refusal            _refuse                          never: what follows is not parsed
    """

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
    def _awaits_body(self) -> bool:
        """Whether the end of the latest request's body is missing, and its reply has not started."""
        return self._replying and self.cycle.more_body and not self.cycle.response_started

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._writer = GatheringTransport(transport, self.loop)
        super().connection_made(self._writer)
        # To close with unread data would reset the connection, and the client would not see the reply.
        self._turned_away = self._enter()
        timeout_s = min(_REFUSED_TIMEOUT_S, self._header_timeout_s) if self._turned_away else self._header_timeout_s
        self._limits = HeaderLimits(self.loop, timeout_s, self._writer.close)
        self._limits.start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._open is not None:
            self._open.leave()
        self._limits.stop_timer()
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
            return too_many(connections.refusals[entered])
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
        if self._awaits_body and (grace_s := self.config.timeout_graceful_shutdown) is not None:
            self.loop.call_later(_BODY_GRACE * grace_s, self._refuse_unfinished)

    def _refuse_unfinished(self) -> None:
        if self._awaits_body and not self.transport.is_closing():
            self._refuse(STOPPING)

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
        parses_body = self._receiving and self._unfinished is None
        if not (self._limits.is_timing or self._replying or parses_body):
            self._limits.start_timer()
        if parses_body and not self._replying and not self.transport.is_closing():
            # No one waits for this body any more, so no one else notices that it stops.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        goes_on = before is not None and before is self._unfinished  # maybe after a request that is being answered
        unfinished = self._limits.is_timing or goes_on
        if unfinished and not self.transport.is_closing() and not self._limits.count_received(len(data)):
            self._refuse(TOO_LARGE)

    def _parse(self, data: bytes) -> None:
        try:
            while data:
                data = self._parse_to_upgrade(data)
        except httptools.HttpParserError:
            what, refusal = "what is not HTTP", NOT_HTTP
            if self._limits.too_large:
                what, refusal = f"headers over {MAX_HEADER_BYTES} bytes", TOO_LARGE
            elif self._is_too_far_ahead:
                what, refusal = "requests too far ahead of their replies", TOO_FAR_AHEAD
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
        self._limits.stop_timer()
        self._refusal = refusal
        if self._awaits_body and self.pipeline:
            self.pipeline.popleft()  # the request with the broken body waits for its turn: drop it
        elif self._awaits_body or not self._replying:
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
        self._limits.start_count()
        if not self._replying:
            # The client asks for more, so it has read the replies before (unless it asks ahead).
            self._unread.clear()
        connection = self._unfinished = ClientConnection(
            self._give_up_reply, self._writer.get_write_buffer_size, self._writer.abort
        )
        self._unread.append(connection)
        scope: Any = self.scope
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
        self._limits.stop_timer()
        self._unfinished = None
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._upgrading = True
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        held: bytes | bytearray = self.cycle.body
        if not held:  # uvicorn would copy a body that comes in one piece into a bytearray, and then back
            self.cycle.body = body  # type: ignore[assignment]
            body = b""
        elif isinstance(held, bytes):
            self.cycle.body = bytearray(held)  # many pieces grow in place
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
        self._receiving = False
        scope: Any = self.scope
        scope[CLIENT_CONNECTION].request_arrived = True
        super().on_message_complete()


class TlsProtocol(Protocol):
    """One HTTP connection over TLS. Each request learns the certificate of its client."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: Any = self.scope
        scope[PEER_CERTIFICATE] = self._certificate

    @cached_property
    def _certificate(self) -> PeerCertificate | None:
        return peer_certificate(self.transport.get_extra_info("ssl_object"))
