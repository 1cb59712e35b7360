"""Send calls over HTTP, and repeat them while that can help."""

import asyncio
import logging
import math
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import httpx
import numpy as np
from typing_extensions import Self

from lachesis._public import CLOSED, MustClose
from lachesis._transport.credentials import Credentials
from lachesis._transport.files import FileBody, FileSink
from lachesis._transport.logs import RateLimitedLog
from lachesis._transport.protocol import Call, Reply, is_gone, read_reply
from lachesis._transport.retry import Backoff
from lachesis._transport.settings import Settings
from lachesis._transport.tls import tls_context
from lachesis._transport.tracing import trace_headers
from lachesis._version import sdk_version
from lachesis.errors import (
    LachesisError,
    NotFound,
    ReplayNotFound,
    RunNotFound,
    Unauthorized,
    Unreachable,
    UntrustedCertificate,
)
from lachesis.wire.blob import Buffer

T = TypeVar("T")

Note: TypeAlias = Callable[[LachesisError], None]
"""Receives each error after which a call is sent again."""

_LOG_PERIOD_S = 60.0
_ASK_AGAIN_S = 0.5
_READ_BYTES = 1024 * 1024
_NO_TLS = re.compile("WRONG_VERSION_NUMBER|record layer failure", re.IGNORECASE)
"""What OpenSSL says about an answer in plain text: its versions before 3.2, and later ones."""

log = logging.getLogger(__name__)


class Sender:
    """A connection pool to one service. Belongs to the event loop it is first used on.

    Attributes:
        retries: Requests that it sent again, because no answer came or the service was too busy.
    """

    def __init__(
        self,
        settings: Settings,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tls: ssl.SSLContext | None = None,
        *,
        proxy: bool = True,
    ) -> None:
        """Connect to nothing yet.

        Args:
            settings: Where the service is, and how patient to be.
            sleep: Waits for so many seconds, before a request is repeated or a lease is extended.
            tls: How to verify a service over TLS. None means as ``settings`` say.
            proxy: Whether a proxy that the environment variables name may be between.

        Raises:
            ValueError: The file of the token, or a file for TLS, cannot be read.
        """
        self.sleep = sleep
        self.retries = 0
        self._settings = settings
        self._used = False
        self._credentials = Credentials(settings)
        self._url = str(httpx.URL(settings.url).copy_with(userinfo=b""))  # httpx logs URLs
        self._trouble_log = RateLimitedLog(_LOG_PERIOD_S)
        self._late_log = RateLimitedLog(_LOG_PERIOD_S)
        self._random = Random(os.urandom(16))  # so that no two processes keep step
        self._http = httpx.AsyncClient(
            base_url=self._url,
            timeout=httpx.Timeout(settings.timeout_s, connect=settings.connect_timeout_s),
            headers={
                "Accept-Encoding": "identity",  # columns hardly compress, and are read into one buffer
                "User-Agent": f"lachesis/{sdk_version()} python-httpx/{httpx.__version__}",
            },
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            # Without TLS there is nothing to verify, and to load the certificates takes 25 ms.
            verify=tls or tls_context(settings) if settings.url.startswith("https:") else False,
            # A proxy of the environment would read the token of a request that is not encrypted.
            trust_env=proxy and (settings.url.startswith("https:") or not self._credentials.given),
        )

    async def send(self, call: Call[T], budget_s: float | None = None, note: Note | None = None) -> T:
        """Send a call until it is answered.

        Args:
            call: The request.
            budget_s: How long to repeat it after its first failure. None means ``retry_budget_s`` of the settings.
                Infinite: it is also repeated after errors that an operator can mend (`retry.is_mendable`).
            note: Receives each error after which the call is sent again.

        Raises:
            ServiceError: The service refused the request, or was still too busy when the budget ended.
            Unreachable: No answer came within the budget.
            RuntimeError: It is closed, or closes during the call.
        """
        backoff = Backoff(self._settings.retry_budget_s if budget_s is None else budget_s)
        began_s = time.monotonic()
        failed_s: float | None = None
        attempt, renewed = 0, False
        while True:
            attempt += 1
            try:
                return read_reply(call, await self._once(call))
            except LachesisError as error:
                if isinstance(error, Unauthorized):
                    if not renewed and self._credentials.look_again():
                        renewed = True
                        continue
                    error.detail = f"{error.detail}; sent: {self._credentials.described()}"
                if attempt > 1 and is_gone(call) and isinstance(error, NotFound):
                    return call.read(Reply(204, {}, b""))  # the answer to an earlier attempt was lost
                now_s = time.monotonic()
                failed_s = now_s if failed_s is None else failed_s
                waited_out = call.not_yet is not None and isinstance(error, call.not_yet)
                pause_s = None if waited_out else backoff.pause_s(error, attempt, now_s - failed_s, self._random)
                if pause_s is None:
                    if attempt > 1 and isinstance(error, Unreachable):
                        raise self._given_up(error, attempt, now_s - began_s) from None
                    raise
                if self.is_closed:
                    raise RuntimeError("this object was closed while the call waited") from None
                how_long = "until it succeeds" if math.isinf(backoff.budget_s) else f"for {backoff.budget_s:g} s"
                self.log_trouble(error, f"Trying again {how_long}")
                if note is not None:
                    note(error)
            await self.sleep(pause_s)
            self.retries += 1

    async def send_once_created(self, call: Call[T], wait_s: float) -> T:
        """Send a call that needs a run or a replay buffer, and wait up to ``wait_s`` until a trainer creates it.

        The wait includes that for a service which cannot be reached yet.

        Raises:
            RunNotFound, ReplayNotFound: It was not created in time.
            Unreachable: No answer came in time, nor within the retry budget.
        """
        until_s = time.monotonic() + wait_s
        missing_log = RateLimitedLog(_LOG_PERIOD_S)
        while True:
            try:
                return await self.send(call, max(self._settings.retry_budget_s, until_s - time.monotonic()))
            except (RunNotFound, ReplayNotFound) as error:
                now_s = time.monotonic()
                if now_s >= until_s:
                    raise
                if missing_log.due(now_s):
                    log.warning("waiting up to %g s: %s", wait_s, error)
            await self.sleep(min(_ASK_AGAIN_S, until_s - now_s))

    def log_trouble(self, error: LachesisError, next_step: str) -> None:
        """Log an error after which the SDK continues, and what it does next. One line a minute at most."""
        if self._trouble_log.due(time.monotonic()):
            ends = f"; is Lachesis running at {self._url}?" if type(error) is Unreachable else "."
            log.warning("%s %s", str(error).rstrip(".") + ends, next_step)

    def log_late(self, lease_s: float, late_s: float) -> None:
        """Log that a lease is extended late. One line a minute at most."""
        if self._late_log.due(time.monotonic()):
            why = "the event loop was blocked, or the process stood still. Run long steps in a thread"
            log.warning("a lease of %g s should have been extended %.1f s ago: %s", lease_s, late_s, why)

    @property
    def is_open(self) -> bool:
        """Whether it was used and is not closed."""
        return self._used and not self.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, used or not."""
        return self._http.is_closed

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _given_up(self, error: Unreachable, attempts: int, elapsed_s: float) -> Unreachable:
        tried = f"no answer in {elapsed_s:.1f} s, {attempts} attempts"
        return Unreachable(f"{error}; {tried}: is Lachesis running at {self._url}?")

    async def lines(self, call: Call[T]) -> AsyncGenerator[str, None]:
        """Send a call once, and yield the lines of its reply as they come. ``call.wait_s`` may pass between two lines.

        Raises:
            ServiceError: The service refused the request.
            Unreachable: There was no answer, or it broke off.
        """
        request = self._request(call)
        try:
            response = await self._http.send(request, stream=True)
            try:
                if not response.is_success:
                    read_reply(call, Reply(response.status_code, response.headers, await response.aread()))
                async for line in response.aiter_lines():
                    yield line
            finally:
                await response.aclose()
        except (httpx.TransportError, ssl.SSLError) as error:
            raise _unreachable(call, request, error) from None

    async def _once(self, call: Call[T]) -> Reply:
        request = self._request(call)
        try:
            response = await self._http.send(request, stream=True)
            read_more_at_once(response)
            try:
                body = await _body(response, call.sink if response.is_success else None)
            finally:
                await response.aclose()
        except (httpx.TransportError, ssl.SSLError) as error:  # such as a refused certificate, while it reads
            raise _unreachable(call, request, error) from None
        return Reply(response.status_code, response.headers, body)

    def _request(self, call: Call[T]) -> httpx.Request:
        if self.is_closed:
            raise RuntimeError(CLOSED)
        self._used = True
        trace = trace_headers() if call.trace is None else call.trace
        timeout = httpx.Timeout(
            self._settings.timeout_s,
            connect=self._settings.connect_timeout_s,
            read=self._settings.timeout_s + call.wait_s,
        )
        return self._http.build_request(
            call.method,
            call.path,
            params=call.params,
            headers={**call.headers, **self._credentials.headers(), **trace},
            content=call.body.pieces() if isinstance(call.body, FileBody) else bytes(call.body),
            timeout=timeout,
        )


class OwnsSender(MustClose):
    """An asyncio object with connections that must be closed."""

    _closed_by = "`async with` or aclose()"
    _sender: Sender

    def _is_open(self) -> bool:
        return hasattr(self, "_sender") and self._sender.is_open


def read_more_at_once(response: httpx.Response) -> None:
    """Let the connection of a reply read 1 MiB at a time.

    httpcore reads 64 KiB at a time, and spends 0.1 ms of Python on each: half the time of a reply of 6 MB.
    """
    stream = response.extensions.get("network_stream")
    if stream is None or not hasattr(stream, "__dict__"):  # another transport, or one whose methods stay as they are
        return
    if "read" not in vars(stream):  # else an earlier reply on this connection did it
        stream.read = partial(_read_more, stream.read)


async def _read_more(read: Callable[..., Awaitable[bytes]], max_bytes: int, timeout: float | None = None) -> bytes:
    return await read(max(max_bytes, _READ_BYTES), timeout)


async def _body(response: httpx.Response, sink: FileSink | None) -> Buffer:
    """Read a body into one buffer of its size: half of what httpx takes to collect and join its pieces."""
    if sink is not None:
        await sink.take(response.aiter_raw())
        return b""
    if "content-length" not in response.headers or "transfer-encoding" in response.headers:  # which counts alone
        return bytearray().join([piece async for piece in response.aiter_raw()])  # arrays over it are to be writable
    length = int(response.headers["content-length"])
    try:
        # A bytearray would be cleared first, on newly mapped pages: 2 of the 17 ms that 6 MB take.
        body = np.empty(length, np.uint8).data
    except (MemoryError, ValueError):
        message = f"a reply of {length} bytes was announced, and there is not so much memory"
        raise httpx.RemoteProtocolError(message) from None
    end = 0
    async for piece in response.aiter_raw():
        body[end : end + len(piece)] = piece  # httpx checks that the length is exact
        end += len(piece)
    return body[:end]  # a reply of status 204 has none, whatever its length says


def _unreachable(call: Call[Any], request: httpx.Request, error: Exception) -> Unreachable:
    """Return the error of a failed attempt. Its cause is left out: that has 40 lines and says no more."""
    failed = f"{call.method} {request.url.copy_with(userinfo=b'')}: {_reason(error)}"
    if "CERTIFICATE_VERIFY_FAILED" in failed:
        advice = "the certificate must be valid for this host, and of a CA that the system or LACHESIS_CA_FILE names"
        return UntrustedCertificate(f"{failed}: {advice}")
    if _NO_TLS.search(failed):
        return Unreachable(f"{failed}: the port may speak plain HTTP: use http:// in the URL")
    return Unreachable(failed)


def _reason(error: Exception) -> str:
    message = str(error).rstrip(".")  # more text follows
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
