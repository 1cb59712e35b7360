"""TLS between a connection and its HTTP protocol.

The event loop could do TLS by itself. Then the service could not tell how much of a reply is still in this process, and
whether the client read it. TLS of asyncio and uvloop hides the buffer of the TCP connection, and knows no half-close;
`app.api.http.connection.server_protocol` needs both. Each connection has the context of its time, so certificates can
change.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from uvicorn.protocols.utils import get_remote_addr

from app.api.http.caller import address_of
from app.api.http.connection.certificates import TlsContexts
from app.logs import LogBackoff

_READ_BYTES = 256 * 1024

log = logging.getLogger("lachesis.api")
_failures = LogBackoff()


class TlsConnection(asyncio.Protocol):
    """One TLS connection of a client.

    The HTTP protocol has the connection from its first byte on, so its deadline for headers includes the handshake.

    Args:
        http: The HTTP protocol of the connection.
        contexts: Makes the context.
        not_tls: The answer to a client that does not speak TLS.
    """

    def __init__(self, http: asyncio.Protocol, contexts: TlsContexts, not_tls: bytes) -> None:
        self._http = http
        self._contexts = contexts
        self._not_tls = not_tls
        self._encrypted = ssl.MemoryBIO()
        self._secure = False
        self._ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Prepare the handshake."""
        self._loop = asyncio.get_running_loop()
        self._caller = address_of({"client": get_remote_addr(transport)})
        outgoing = ssl.MemoryBIO()
        self._tls = self._contexts.current().wrap_bio(self._encrypted, outgoing, server_side=True)
        self._transport = TlsTransport(transport, self._tls, outgoing, self._read_soon)
        self._http.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        """Decrypt what came, and pass it on."""
        self._encrypted.write(data)
        self._read()

    def eof_received(self) -> bool:
        """Pass on that the client sends no more. Clients that close without saying so in TLS are usual."""
        self._encrypted.write_eof()
        self._read()
        return True  # the HTTP protocol closes the connection

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._http.resume_writing()

    def _read_soon(self) -> None:
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Pass on everything that is complete, unless the HTTP protocol has paused reading."""
        try:
            if not self._secure:
                self._tls.do_handshake()
                self._secure = self._transport.secure = True
            while not (self._transport.paused or self._ended or self._transport.is_closing()):
                data = self._tls.read(_READ_BYTES)
                if not data:
                    raise ssl.SSLEOFError
                self._http.data_received(data)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self._end()
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._transport.send()

    def _end(self) -> None:
        if self._ended or self._transport.is_closing():
            return
        self._ended = True
        if not (self._secure and self._http.eof_received()):
            self._transport.close()

    def _fail(self, error: ssl.SSLError) -> None:
        reason = error.reason or "unknown"
        if _failures.is_due(reason):
            log.warning("TLS failed", extra={"fields": {"reason": reason.lower(), "caller": self._caller}})
        if reason == "HTTP_REQUEST":
            self._transport.send_plain(self._not_tls)
        else:
            self._transport.send()  # the alert, which says why
        self._transport.close()


class TlsTransport(asyncio.Transport):
    """The encrypting side of a `TlsConnection`, as its HTTP protocol sees it."""

    def __init__(
        self, transport: asyncio.Transport, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO, read: Callable[[], None]
    ) -> None:
        super().__init__()
        self._transport = transport
        self._tls = tls
        self._outgoing = outgoing
        self._read = read
        self.secure = False
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send. Before the handshake is complete nothing is sent."""
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt and send several pieces. If the client closed without saying so in TLS, end the connection."""
        if not self.secure:
            return
        try:
            for data in list_of_data:
                rest = memoryview(data)
                while rest:
                    rest = rest[self._tls.write(rest) :]
        except ssl.SSLError:  # after such an end, OpenSSL encrypts nothing more
            self.abort()
            return
        self.send()

    def send(self) -> None:
        """Send what TLS has to say."""
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def send_plain(self, data: bytes) -> None:
        """Send without encryption, to a client that does not speak TLS."""
        self._transport.write(data)

    def get_write_buffer_size(self) -> int:
        """Return how much was written and is still in this process."""
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection; ``ssl_object`` and ``sslcontext`` are those of TLS."""
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether the connection is closing or closed."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        self.paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, first what has come already."""
        self.paused = False
        self._transport.resume_reading()
        self._read()

    def close(self) -> None:
        """Say in TLS that nothing follows, and close the connection after what was written."""
        if self.secure and not self._transport.is_closing():
            self.secure = False
            with suppress(ssl.SSLError):  # the client has not said the same yet, and need not
                self._tls.unwrap()
            self.send()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()
