"""uvicorn's HTTP protocol, with what it lacks.

It limits slow or huge headers and tells of broken replies; it refuses what is not HTTP after the answers under way,
not instead of them; and it ignores ``Upgrade``, so that the body of such a request is read.

What a server learns about the end of a connection (measured, uvloop 0.23 on Linux):

    client read everything, then closed          connection_lost(None)
    client closed with anything left unread      connection_lost(ConnectionResetError or BrokenPipeError)
    client half-closed, or closed                eof_received(): the same for both
    and we close our end then                    connection_lost(None) once what was written has left

The second holds even when our last byte was written long before: the client's kernel answers a close with
unread data by a reset. It holds only while we keep our end open, so not for replies sent with ``Connection: close``.

A client that half-closes behind a whole request gets its answer, unless the answer is one whose sender must know
whether it arrived: that could not be told any more, and most who half-close have gone.
"""

import asyncio
import http
import socket
import sys
from functools import partial
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.http.client_connection import SCOPE_KEY, Connection
from app.api.http.problem_json import MEDIA_TYPE, code_of, problem_json

MAX_HEADER_BYTES = 32 * 1024
_JOINED_BYTES = 16 * 1024
_GATHERED_BYTES = 512 * 1024
_TCP_CLOSE = 7  # of enum tcp_state in linux/tcp.h, as are the two below of struct tcp_info
_TCPI_UNACKED = 24
_TCP_INFO_BYTES = 32


def _refusal(status: int, detail: str) -> bytes:
    body = problem_json(status, code_of(status), detail)
    phrase = http.HTTPStatus(status).phrase
    head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


_TOO_LARGE = _refusal(431, f"the headers are over {MAX_HEADER_BYTES} bytes")
_NOT_HTTP = _refusal(400, "not an HTTP request")


def make_protocol(header_timeout_s: float) -> type[asyncio.Protocol]:
    """Make what uvicorn's ``http=`` takes; a partial, since workers are sent it by pickle."""
    return cast("type[asyncio.Protocol]", partial(Protocol, header_timeout_s=header_timeout_s))


def _was_refused(connection: socket.socket | None) -> bool:
    """Whether the other end has reset the connection, or has not confirmed all that was sent (Linux can tell)."""
    if connection is None or not hasattr(socket, "TCP_INFO") or connection.family == socket.AF_UNIX:
        return False
    if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        return True
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    return info[0] == _TCP_CLOSE or int.from_bytes(info[_TCPI_UNACKED : _TCPI_UNACKED + 4], sys.byteorder) > 0


class _Gathering:
    """A transport that sends what is written in one turn of the event loop by as few calls as is wise.

    uvicorn writes a reply's head and body apart: on loopback the second system call and wake-up were 5 % of a
    submission. A batch of 6 MB comes in a hundred pieces: one by one they took 3.3 ms, eight at a time take 2.0.
    """

    __slots__ = ("_flush_soon", "_held", "_held_bytes", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._flush_soon = partial(loop.call_soon, self.flush)
        self._held: list[bytes | memoryview] = []
        self._held_bytes = 0

    def write(self, data: bytes | memoryview) -> None:
        if not self._held:
            self._flush_soon()
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes >= _GATHERED_BYTES:
            self.flush()

    def unsent_bytes(self) -> int:
        """Return how much was written and is still in this process."""
        return self._held_bytes + self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        if not self._held:
            return
        data, size = self._held, self._held_bytes
        self._held, self._held_bytes = [], 0
        if self._transport.is_closing():
            return  # answers to who asked ahead and left
        if size <= _JOINED_BYTES:
            self._transport.write(b"".join(data))
        else:
            self._transport.writelines(data)


class Protocol(HttpToolsProtocol):
    """One HTTP connection."""

    def __init__(self, *args: Any, header_timeout_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timeout_s = header_timeout_s
        self._headers_due: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._unfinished_bytes = 0
        self._unfinished: Connection | None = None  # whose headers are
        self._headers_too_large = False
        self._upgrading = False
        self._refusal = b""  # to be sent after the answers under way
        self._unread: list[Connection] = []
        self._receiving = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._writer = _Gathering(transport, self.loop)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting_headers()
        if exc is not None or self._replying:
            self._break_unread()
        self._unread.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        self._writer.flush()  # a reply of this turn: our end may close now, and whether it is refused be asked
        # A client that gave up around the time of its reply has closed cleanly, and our end closes with it. Whether the
        # reply was still to come, or nobody took it, is known only now (1 % of clients that hung up just then).
        if self._replying or _was_refused(self.transport.get_extra_info("socket")):
            self._break_unread()
        if not self._replying or self.cycle.more_body:
            return False
        self.cycle.keep_alive = False
        return True  # we close our end after the answer

    def shutdown(self) -> None:
        for connection in self._unread:
            connection.shut_down()
        self._writer.flush()  # a reply of this turn, after which the connection may close
        super().shutdown()

    def _break_unread(self) -> None:
        for connection in self._unread:
            connection.break_off(self.loop)
        self._unread.clear()

    def data_received(self, data: bytes) -> None:
        if self._refusal:
            return
        if self._headers_due is None and not self._replying and not self._receiving:
            self._expect_headers()
        self._unset_keepalive_if_required()
        before = self._unfinished
        self._parse(data)
        goes_on = before is not None and before is self._unfinished  # maybe behind a request that is being answered
        if (self._headers_due is not None or goes_on) and not self.transport.is_closing():
            # The parser holds an unfinished header back, so its bytes are counted as they come in.
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > MAX_HEADER_BYTES:
                self._refuse(_TOO_LARGE)

    def _parse(self, data: bytes) -> None:
        try:
            while data:
                data = self._parse_to_upgrade(data)
        except httptools.HttpParserError:
            self.logger.warning("Refused what is not HTTP, or has headers over %d bytes.", MAX_HEADER_BYTES)
            self._refuse(_TOO_LARGE if self._headers_too_large else _NOT_HTTP)

    def _parse_to_upgrade(self, data: bytes) -> bytes:
        """Parse up to the end of a request's headers that ask for an upgrade; returns what is behind them."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._upgrading:
                return b""  # CONNECT: what follows is not HTTP
            self._upgrading = False
            self.parser.feed_data(self._head_without_upgrade())
            return data[upgrade.args[0] :]
        return b""

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, refusal: bytes) -> None:
        """Refuse what came last and end the connection, once requests that came whole before it are answered."""
        self._stop_expecting_headers()
        self._refusal = refusal
        broken = self._replying and self.cycle.more_body and not self.cycle.response_started  # its body is
        if broken and self.pipeline:
            self.pipeline.popleft()  # it is the last one, and has not begun
        elif broken or not self._replying:
            self._send_refusal()

    def _send_refusal(self) -> None:
        self._writer.write(self._refusal)
        self._writer.close()
        self._give_up_reply()

    def _give_up_reply(self) -> None:
        if self._replying:
            self.cycle.disconnected = True  # before the connection says so, lest more of it follows
            self.cycle.message_event.set()
        self.transport.close()

    def on_response_complete(self) -> None:
        more = bool(self.pipeline)
        super().on_response_complete()
        if self._refusal and not more:
            self._send_refusal()

    @property
    def _replying(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete  # None before the first request

    # Time: from the connection's or request's first sign to the end of its headers.

    def _expect_headers(self) -> None:
        self._unfinished_bytes = 0
        self._headers_due = self.loop.call_later(self._header_timeout_s, self._headers_are_late)

    def _stop_expecting_headers(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _headers_are_late(self) -> None:
        self._headers_due = None
        self._writer.close()

    # Parser callbacks

    def on_body(self, body: bytes) -> None:
        # A piece that nothing waits before is passed on as it is; by uvicorn's bytearray it would be copied twice.
        waiting = self.cycle.body
        if not waiting:
            self.cycle.body = b""  # type: ignore[assignment]
        elif isinstance(waiting, bytes):
            self.cycle.body = bytearray(waiting)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
        self._receiving = False
        cast("dict[str, Any]", self.scope)[SCOPE_KEY].request_arrived = True
        super().on_message_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._receiving = True  # until its body is through, which may be after an early answer
        self._header_bytes = self._unfinished_bytes = 0
        if not self._replying:
            # The client asks for more, so it has what it asked for before (unless it is pipelining).
            self._unread.clear()
        connection = self._unfinished = Connection(self._give_up_reply, self._writer.unsent_bytes)
        self._unread.append(connection)
        cast("dict[str, Any]", self.scope)[SCOPE_KEY] = connection

    def on_url(self, url: bytes) -> None:
        self._count_header(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value) + len(": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_expecting_headers()
        self._unfinished = None
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._upgrading = True
            return
        super().on_headers_complete()
        self.cycle.transport = cast("asyncio.Transport", self._writer)

    # Size

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            self._headers_too_large = True
            raise ValueError("headers too large")  # the parser stops
