"""Read a request's body within limits of size, memory and time."""

import asyncio
import io
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from app.api.http.bodies.body_budget import BodyShare
from app.api.http.bodies.inflate import OUTPUT_BYTES, Inflater
from app.api.http.connection.client_connection import has_arrived
from app.api.http.headers import content_length, headers_of
from app.api.http.rate_limits import count_body
from lachesis.wire.errors import BodyTooLarge, RequestTimeout, UnsupportedEncoding

_SLOWEST_BYTES_PER_S = 16 * 1024
_FEW_PARTS = 64  # usually 64 kB each. Many small parts would take much more memory than their bytes


async def read_body(request: Request, share: BodyShare, *, limit_bytes: int, timeout_s: float) -> bytes:
    """Read a request's body and undo its Content-Encoding (none, or one layer of gzip).

    A body that is too large is refused as soon as that is known: from its Content-Length, or while it is read.

    Args:
        request: A request whose body has not been read.
        share: The share of the memory budget. This claims room in it, and waits for it. The caller releases the share.
        limit_bytes: Largest body, both as sent and inflated.
        timeout_s: The longest pause, and how far the body may fall behind 16 KiB/s. Time spent waiting for room does
            not count.

    Raises:
        UnsupportedEncoding: The body has another encoding than gzip, or several.
        BodyTooLarge: It is over the limit, inflates too many times, or has too many gzip members.
        MalformedBody: It is not gzip (damaged, cut off, or followed by something else), or its size is not a number.
        RequestTimeout: It stopped arriving, or was evicted because it was slow while others waited for memory.
        starlette.requests.ClientDisconnect: The client went away.
    """
    inflater = Inflater(limit_bytes) if _is_gzip(request) else None
    announced_bytes = _announced_bytes(request, limit_bytes)
    if inflater is None and announced_bytes and has_arrived(request.scope):
        await share.claim(announced_bytes)
        message = await request.receive()  # one message has all of it
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        return bytes(message["body"])
    collected, deadline, sent_bytes = _Parts(), _Deadline(timeout_s), 0
    share.begin(deadline.end)
    try:
        async with deadline.timeout:
            async for chunk in request.stream():
                sent_bytes += len(chunk)
                if sent_bytes > limit_bytes:
                    raise BodyTooLarge(f"the body is larger than {limit_bytes} bytes")
                for part in inflater.feed(chunk) if inflater else (chunk,):
                    size_bytes = collected.size_bytes + len(part)
                    if not share.covers(size_bytes):
                        with deadline.paused():
                            await share.claim(size_bytes)
                    collected.add(part)
                    if len(part) >= OUTPUT_BYTES:
                        await asyncio.sleep(0)  # others are served while much is inflated
                if not has_arrived(request.scope):
                    deadline.extend(sent_bytes)
        share.end()
    except TimeoutError as error:
        share.end()
        raise RequestTimeout(
            f"the body stopped, or came too slowly, after {sent_bytes} bytes (LACHESIS_BODY_TIMEOUT_S)"
        ) from error
    finally:  # what has arrived counts, also of a body that is refused or cut off
        await count_body(request.scope, sent_bytes)
    if inflater:
        inflater.finish()
    return collected.joined()


def longest_pause_s(timeout_s: float, sent_bytes: int, waited_s: float) -> float:
    """Return how long a body may pause now.

    Args:
        timeout_s: The longest pause, and how far the body may fall behind its slowest pace.
        sent_bytes: What has arrived of the body.
        waited_s: How long that took.
    """
    return timeout_s - max(0.0, waited_s - sent_bytes / _SLOWEST_BYTES_PER_S)


class _Parts:
    """The parts of a body. A few are joined at the end, which copies them once. Many grow in place instead.

    Each of many parts is written at once: its memory serves the next part. To hold some first took twice the CPU time.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._few: list[bytes] = []
        self._many = io.BytesIO()

    def add(self, part: bytes) -> None:
        """Add the next part."""
        self.size_bytes += len(part)
        if self._many.tell():
            self._many.write(part)
            return
        self._few.append(part)
        if len(self._few) > _FEW_PARTS:
            self._many.writelines(self._few)
            self._few.clear()

    def joined(self) -> bytes:
        """Return the body."""
        return self._many.getvalue() if self._many.tell() else b"".join(self._few)


class _Deadline:
    """The time until which a body must make progress (`longest_pause_s`)."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout = asyncio.timeout(timeout_s)
        self._timeout_s = timeout_s
        self._clock = asyncio.get_running_loop().time
        self._started = self._clock()

    def end(self) -> None:
        """Let the time be over now."""
        if not self.timeout.expired():
            self.timeout.reschedule(self._clock())

    def extend(self, sent_bytes: int) -> None:
        """Move the deadline after so many bytes have arrived in all."""
        now = self._clock()
        self.timeout.reschedule(now + longest_pause_s(self._timeout_s, sent_bytes, now - self._started))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the time inside the block."""
        self.timeout.reschedule(None)
        stopped = self._clock()
        yield
        self._started += self._clock() - stopped


def _is_gzip(request: Request) -> bool:
    codings = headers_of(request.scope, b"content-encoding")
    if not codings:
        return False
    coding = b", ".join(codings).decode("latin-1").strip().lower()
    if coding not in ("", "identity", "gzip", "x-gzip"):
        raise UnsupportedEncoding(f"Content-Encoding {reprlib.repr(coding)}; send the body as it is, or as gzip")
    return coding.endswith("gzip")


def _announced_bytes(request: Request, limit_bytes: int) -> int:
    """Return the Content-Length; 0 if the header is missing."""
    announced = content_length(request.scope) or 0
    if announced > limit_bytes:
        raise BodyTooLarge(f"Content-Length {announced}: the limit is {limit_bytes} bytes")
    return announced
