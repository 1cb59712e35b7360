"""A service whose connections tests speak to byte by byte: raw sockets against uvicorn on uvloop."""

import queue
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, cast

import pytest
import uvicorn

from app.api.http.connection.certificates import TlsContexts
from app.api.http.connection.client_connection import connection_of, has_arrived
from app.api.http.connection.protocol_factory import make_protocol
from app.api.http.replies import WatchedReply
from tests import waiting
from tests.authority import TlsSocket
from tests.e2e.processes import wait_until

HEADER_TIMEOUT_S = 0.4
GET = b"GET %s HTTP/1.1\r\nhost: x\r\n\r\n"


class Service:
    """An application that answers ``?bytes=`` bytes in two halves, and notes which replies broke off.

    Requests to `HELD` wait for `release`. A request to ``/ping`` is answered unnoted.
    """

    HELD = ("/late", "/unwatched", "/watched")

    def __init__(
        self, tls: TlsContexts | None = None, trust: ssl.SSLContext | None = None, keep_alive_s: int = 60
    ) -> None:
        self.trust = trust
        self.broken: queue.Queue[str] = queue.Queue()
        self.answered: queue.Queue[str] = queue.Queue()
        self.bodies: queue.Queue[bytes] = queue.Queue()
        self.headers: queue.Queue[dict[bytes, bytes]] = queue.Queue()  # as they are once the body is read
        self.arrived: queue.Queue[bool] = queue.Queue()
        self.released = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            loop="uvloop",
            http=make_protocol(HEADER_TIMEOUT_S, tls),
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=keep_alive_s,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))
        self._thread.start()
        wait_until("it has started", lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join()

    async def _app(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["path"] == "/ping":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})
            return
        answered, broken, released = self.answered, self.broken, self.released  # those of the test that asks
        self.arrived.put(has_arrived(scope))
        path, half = scope["path"], int(scope["query_string"] or 2) // 2
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.put(body)
        self.headers.put(dict(scope["headers"]))
        connection = connection_of(scope)
        assert connection is not None
        if path in self.HELD:
            await waiting.wait_until(released.is_set)
        if path == "/watched":
            await WatchedReply([b"{}"], {}, self._note(answered), self._note(broken))(scope, receive, send)
            return
        if path != "/unwatched":
            connection.on_reset(lambda: broken.put(path))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % (2 * half))]})
        await send({"type": "http.response.body", "body": b"x" * half, "more_body": True})
        if path == "/unfinished":
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        await send({"type": "http.response.body", "body": b"x" * half})
        answered.put(path)

    def _note(self, notes: queue.Queue[str]) -> Callable[[], Coroutine[Any, Any, None]]:
        async def note() -> None:
            notes.put("/watched")

        return note

    def connect(self) -> socket.socket:
        client = socket.create_connection(self.address)
        client.settimeout(10)
        if self.trust is None:
            return client
        return cast("socket.socket", TlsSocket(client, self.trust, "localhost"))

    def let_read(self) -> None:
        """Return once the service has read all that was sent before: it has answered a later request."""
        with self.connect() as other:
            other.sendall(GET % b"/ping")
            read_reply(other)

    def release(self) -> None:
        """Let requests be answered that wait, once all that was sent before has been read."""
        self.let_read()
        self.released.set()

    def outlast_header_deadline(self) -> None:
        """Return once a connection that begins now, and stays silent, has been closed."""
        with self.connect() as silent:
            read_until_closed(silent)

    @property
    def url(self) -> str:
        return "{}://localhost:{}/".format("https" if self.trust else "http", self.address[1])


def read_reply(client: socket.socket, body_bytes: int = 2) -> bytes:
    """Read one reply; of a long body only the beginning is given back."""
    reply = b""
    while b"\r\n\r\n" not in reply:
        part = client.recv(1 << 16)
        assert part, f"closed after {reply!r}"
        reply += part
    missing = body_bytes - len(reply.partition(b"\r\n\r\n")[2])
    while missing > 0:
        part = client.recv(1 << 16)
        assert part, f"closed with {missing} bytes missing"
        missing -= len(part)
    return reply


def read_replies(client: socket.socket, expected: int) -> None:
    """Read until this many replies with status 200 have begun, in one segment or in many."""
    received = b""
    while received.count(b"HTTP/1.1 200") < expected:
        part = client.recv(1 << 16)
        assert part, f"closed after {received!r}"
        received += part


def read_until_closed(client: socket.socket, drip: bytes = b"") -> None:
    """Send ``drip`` byte by byte, over and over, until the other end closes. It fails after 200 bytes."""
    client.settimeout(0.05)
    for turn in range(200):
        try:
            if drip:
                client.send(drip[turn % len(drip) :][:1])
            if client.recv(1 << 16) == b"":
                break
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            break
    else:
        pytest.fail("never closed")
