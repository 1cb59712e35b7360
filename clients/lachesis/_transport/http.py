"""Send calls over HTTP, and repeat them while that can help."""

import asyncio
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from types import TracebackType
from typing import TypeVar

import httpx
import numpy as np
from typing_extensions import Self

from lachesis._public import MustClose
from lachesis._transport.files import FileBody, FileSink
from lachesis._transport.logs import RateLimitedLog
from lachesis._transport.protocol import Call, Reply, is_gone, read_reply
from lachesis._transport.retry import Backoff
from lachesis._transport.settings import Settings
from lachesis.errors import LachesisError, NotFound, ReplayNotFound, RunNotFound, Unreachable
from lachesis.wire.blob import Buffer

T = TypeVar("T")

_LOG_PERIOD_S = 60.0
_ASK_AGAIN_S = 0.5
_READ_BYTES = 1024 * 1024

log = logging.getLogger(__name__)


class Sender:
    """A connection pool to one service. Belongs to the event loop it is first used on."""

    def __init__(
        self,
        settings: Settings,
        random: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Connect to nothing yet.

        Args:
            settings: Where the service is, and how patient to be.
            random: Generator of the jitter. None: one with a seed of its own.
            sleep: Waits for so many seconds, before a request is repeated or a lease is extended.
        """
        self.sleep = sleep
        self._settings = settings
        self._used = False
        self._url = str(httpx.URL(settings.url).copy_with(userinfo=b""))  # no password in a log
        self._trouble_log = RateLimitedLog(_LOG_PERIOD_S)
        self._random = random or Random(os.urandom(16))  # so that no two processes keep step
        self._http = httpx.AsyncClient(
            base_url=settings.url,
            timeout=httpx.Timeout(settings.timeout_s, connect=settings.connect_timeout_s),
            headers={"Accept-Encoding": "identity"},  # columns hardly compress, and are read into one buffer
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            # Without TLS there is nothing to verify, and to load the certificates takes 25 ms.
            verify=settings.url.startswith("https:"),
        )

    async def send(
        self, call: Call[T], budget_s: float | None = None, note: Callable[[LachesisError], None] | None = None
    ) -> T:
        """Send a call until it is answered.

        Args:
            call: The request.
            budget_s: How long to repeat it. None: ``retry_budget_s`` of the settings.
            note: Receives each error after which the call is sent again.

        Raises:
            ServiceError: The service refused the request, or was still too busy when the budget ended.
            Unreachable: No answer came within the budget.
        """
        backoff = Backoff(self._settings.retry_budget_s if budget_s is None else budget_s)
        began_s = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                return read_reply(call, await self._once(call))
            except LachesisError as error:
                if attempt > 1 and is_gone(call) and isinstance(error, NotFound):
                    return call.read(Reply(204, {}, b""))  # the answer to an earlier attempt was lost
                elapsed_s = time.monotonic() - began_s
                waited_out = call.not_yet is not None and isinstance(error, call.not_yet)
                pause_s = None if waited_out else backoff.pause_s(error, attempt, elapsed_s, self._random)
                if pause_s is None:
                    if attempt > 1 and isinstance(error, Unreachable):
                        raise self._given_up(error, attempt, elapsed_s) from None
                    raise
                self._log_trouble(error, backoff.budget_s)
                if note is not None:
                    note(error)
            await self.sleep(pause_s)

    async def send_once_created(self, call: Call[T], wait_s: float) -> T:
        """Send a call that needs a run or a replay buffer, and wait up to ``wait_s`` until a trainer creates it.

        Raises:
            RunNotFound, ReplayNotFound: Nobody created it in time.
        """
        until_s: float | None = None  # counted from the first answer, which may take a while itself
        missing_log = RateLimitedLog(_LOG_PERIOD_S)
        while True:
            try:
                return await self.send(call)
            except (RunNotFound, ReplayNotFound) as error:
                now_s = time.monotonic()
                until_s = now_s + wait_s if until_s is None else until_s
                if now_s >= until_s:
                    raise
                if missing_log.due(now_s):
                    log.warning("%s Waiting for it, %g s at most", error, wait_s)
            await self.sleep(min(_ASK_AGAIN_S, until_s - now_s))

    @property
    def is_open(self) -> bool:
        """Whether it was used and is not closed."""
        return self._used and not self._http.is_closed

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

    def _log_trouble(self, error: LachesisError, budget_s: float) -> None:
        if self._trouble_log.due(time.monotonic()):
            ends = f"; is Lachesis running at {self._url}?" if isinstance(error, Unreachable) else "."
            trouble = str(error).rstrip(".") + ends
            how_long = "until it answers" if math.isinf(budget_s) else f"for {budget_s:g} s"
            log.warning("%s Trying again %s", trouble, how_long)

    async def _once(self, call: Call[T]) -> Reply:
        self._used = True
        timeout = httpx.Timeout(
            self._settings.timeout_s,
            connect=self._settings.connect_timeout_s,
            read=self._settings.timeout_s + call.wait_s,
        )
        request = self._http.build_request(
            call.method,
            call.path,
            params=call.params,
            headers=call.headers,
            content=call.body.pieces() if isinstance(call.body, FileBody) else bytes(call.body),
            timeout=timeout,
        )
        try:
            response = await self._http.send(request, stream=True)
            read_more_at_once(response)
            try:
                body = await _body(response, call.sink if response.is_success else None)
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            url = request.url.copy_with(userinfo=b"")
            # The traceback of the cause has 40 lines and says no more than its message.
            raise Unreachable(f"{call.method} {url}: {_reason(error)}") from None
        return Reply(response.status_code, response.headers, body)


class OwnsSender(MustClose):
    """An asyncio object with connections that must be closed."""

    _closed_by = "`async with` or aclose()"
    _sender: Sender

    def _is_open(self) -> bool:
        return hasattr(self, "_sender") and self._sender.is_open


def read_more_at_once(response: httpx.Response) -> None:
    """Let the connection of a reply read 1 MiB at a time from now on.

    httpcore reads 64 KiB at a time, and spends 0.1 ms of Python on each: half the time of a reply of 6 MB.
    """
    stream = response.extensions.get("network_stream")
    if stream is None or not hasattr(stream, "__dict__"):  # another transport, or one whose methods stay as they are
        return
    if "read" not in vars(stream):  # else an earlier reply on this connection has seen to it
        stream.read = partial(_read_more, stream.read)


async def _read_more(read: Callable[..., Awaitable[bytes]], max_bytes: int, timeout: float | None = None) -> bytes:
    return await read(max(max_bytes, _READ_BYTES), timeout)


async def _body(response: httpx.Response, sink: FileSink | None) -> Buffer:
    """Read a body into one buffer of its size: half of what httpx takes to collect and join its pieces."""
    if sink is not None:
        await sink.take(response.aiter_raw())
        return b""
    if "content-length" not in response.headers:
        return bytearray().join([piece async for piece in response.aiter_raw()])  # arrays over it are to be writable
    # A bytearray would be cleared first, on newly mapped pages: 2 of the 17 ms that 6 MB take.
    body = np.empty(int(response.headers["content-length"]), np.uint8).data
    end = 0
    async for piece in response.aiter_raw():
        body[end : end + len(piece)] = piece  # httpx sees to it that there is neither more nor less
        end += len(piece)
    return body


def _reason(error: httpx.TransportError) -> str:
    said = str(error).rstrip(".")  # more is said after it
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
