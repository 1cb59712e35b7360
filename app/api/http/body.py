"""Read a request's body within bounds: of size (sent, inflated, and their ratio), memory and patience."""

import asyncio
import io
import reprlib
from collections.abc import Generator, Iterator
from typing import Any

from starlette.requests import Request

from app.api.http.body_budget import UNCOUNTED_BYTES, Share
from app.api.http.client_connection import has_arrived
from app.core.errors import BodyTooLarge, MalformedBody, RequestTimeout, UnsupportedEncoding

try:
    from isal import isal_zlib as zlib
except ImportError:  # no wheel for this Python
    import zlib  # type: ignore[no-redef]

_DAMAGED: Any = zlib.error

_GZIP = 31  # window bits of zlib for a gzip member
_INPUT_BYTES = 64 * 1024  # inflated at a time: what is left of a piece is copied with each step
_OUTPUT_BYTES = 1024 * 1024  # a step's output at most, so a bomb is seen before it has gone off
_HARMLESS_BYTES = 32 * 1024 * 1024
_MAX_RATIO = 200
_MAX_LENGTH_DIGITS = 20
_SLOWEST_BYTES_PER_S = 16 * 1024
_CLAIMED_UNSEEN_BYTES = 32 * 1024 * 1024  # more than that is claimed when it has arrived


async def read_body(request: Request, share: Share, *, limit_bytes: int, timeout_s: float) -> bytes:
    """Read a request's body and undo its Content-Encoding (none, or one layer of gzip).

    What is too large is refused as soon as that shows: by its Content-Length before reading, else while reading.

    Args:
        request: A request whose body nobody has read.
        share: Claims room for it, and waits for that; what it holds is the caller's to give back.
        limit_bytes: Largest body, both as sent and inflated.
        timeout_s: A body that makes no progress for this long, or is this far behind 16 KiB/s, is given up. The time it
            waits for room does not count.

    Raises:
        UnsupportedEncoding: The body is encoded other than by gzip, or more than once.
        BodyTooLarge: It is over the limit, or inflates like a bomb.
        MalformedBody: It is not the gzip it claims to be: damaged, cut off, or with something after it.
        RequestTimeout: It stopped arriving.
        starlette.requests.ClientDisconnect: The client went away.
    """
    inflater = _Inflater(limit_bytes) if _is_gzip(request) else None
    announced_bytes = _announced(request, limit_bytes)
    if inflater is None:
        await share.claim(min(announced_bytes, _CLAIMED_UNSEEN_BYTES))
        if announced_bytes and has_arrived(request.scope):
            return b"".join([chunk async for chunk in request.stream() if chunk])  # one piece, which is not copied
    most_bytes = limit_bytes if inflater or not announced_bytes else announced_bytes
    sent_bytes = 0
    collected = io.BytesIO()
    clock = asyncio.get_running_loop().time
    started = clock()
    try:
        async with asyncio.timeout(timeout_s) as patience:
            async for chunk in request.stream():
                sent_bytes += len(chunk)
                if sent_bytes > limit_bytes:
                    raise BodyTooLarge(f"the body is larger than {limit_bytes} bytes")
                for part in inflater.feed(chunk) if inflater else (chunk,):
                    size_bytes = collected.tell() + len(part)
                    if not share.covers(size_bytes):
                        patience.reschedule(None)
                        asked = clock()
                        await share.claim(min(most_bytes, max(2 * UNCOUNTED_BYTES, 2 * size_bytes)))
                        started += clock() - asked
                    collected.write(part)
                if not has_arrived(request.scope):  # a timer takes 2 us
                    patience.reschedule(min(clock(), started + sent_bytes / _SLOWEST_BYTES_PER_S) + timeout_s)
    except TimeoutError as error:
        raise RequestTimeout(f"the body stopped, or came too slowly, after {sent_bytes} bytes") from error
    if inflater:
        inflater.finish()
    return collected.getvalue()


def _is_gzip(request: Request) -> bool:
    coding = ", ".join(request.headers.getlist("content-encoding")).strip().lower()
    if coding not in ("", "identity", "gzip", "x-gzip"):
        raise UnsupportedEncoding(f"Content-Encoding {reprlib.repr(coding)}; this service reads gzip, one layer of it")
    return coding.endswith("gzip")


def _announced(request: Request, limit_bytes: int) -> int:
    """The Content-Length, 0 if there is none."""
    announced = request.headers.get("content-length", "0")
    if not (announced.isascii() and announced.isdigit()):
        raise MalformedBody(f"Content-Length {reprlib.repr(announced)}")
    if len(announced) > _MAX_LENGTH_DIGITS or int(announced) > limit_bytes:
        raise BodyTooLarge(f"a body of {announced[:_MAX_LENGTH_DIGITS]} bytes is announced; the limit is {limit_bytes}")
    return int(announced)


class _Inflater:
    """Inflates gzip, of one member or more, as it arrives."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._member: Any = None
        self._sent_bytes = 0
        self._inflated_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Inflate the next part of the body, step by step; each is at most `_OUTPUT_BYTES`."""
        self._sent_bytes += len(chunk)
        for start in range(0, len(chunk), _INPUT_BYTES):
            piece = chunk[start : start + _INPUT_BYTES]
            while piece:
                piece = yield from self._inflate(piece)

    def finish(self) -> None:
        """Check that the body ended where its last member does."""
        if self._member is None or not self._member.eof:
            raise MalformedBody(f"the gzip body is cut off after {self._sent_bytes} bytes")

    def _inflate(self, piece: bytes) -> Generator[bytes, None, bytes]:
        """Inflate what is now complete of ``piece``; returns what belongs to the next member."""
        if self._member is None or self._member.eof:
            self._member = zlib.decompressobj(wbits=_GZIP)
        full = True
        while full and not self._member.eof:  # a full step may have left more behind
            try:
                inflated = self._member.decompress(piece, _OUTPUT_BYTES)
            except _DAMAGED as error:
                raise MalformedBody(f"not gzip, or damaged, within {self._sent_bytes} bytes: {error}") from error
            piece, full = self._member.unconsumed_tail, len(inflated) == _OUTPUT_BYTES
            self._count(len(inflated))
            yield inflated
        return bytes(self._member.unused_data)

    def _count(self, inflated_bytes: int) -> None:
        self._inflated_bytes += inflated_bytes
        if self._inflated_bytes > self._limit_bytes:
            raise BodyTooLarge(f"the body inflates to more than {self._limit_bytes} bytes")
        if self._inflated_bytes > max(_HARMLESS_BYTES, _MAX_RATIO * self._sent_bytes):
            raise BodyTooLarge(f"the body inflates more than {_MAX_RATIO} times, beyond {_HARMLESS_BYTES} bytes")
