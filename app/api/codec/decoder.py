"""Decode bodies: at once what is quick, the rest in threads, a few bodies of a sender at a time."""

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakValueDictionary

from starlette.types import Scope

from app.api.codec.group_fields import count_byte
from app.api.http.caller import counted_sender
from lachesis.wire.blob import LENGTH_BYTES
from lachesis.wire.frame import FORMAT

T = TypeVar("T")
_FORMAT = FORMAT.encode()
_QUICK_BYTES = 16 * 1024
_IN_THREAD_BYTES = 1024 * 1024
_PARTS = (b'"', b"[", b"{")  # strings, arrays and objects: each takes up to 2 us
_MOST_QUICK_PARTS = 4000
_MOST_THREADS = 2  # of a sender: a small body need not wait for a huge one
_HUGE_BYTES = 32 * 1024 * 1024


class Decoder:
    """Decode bodies without blocking the event loop, and without filling the memory.

    Threads take turns with the event loop: six that decode delay it by 30 ms each time, and two by 7 ms. So a sender
    has two at most. It loses little: threads of Python decode one after the other anyway.

    Decoding JSON takes 8 to 18 times the memory of the body. That is fine for many small bodies, and for one huge body.
    """

    def __init__(self) -> None:
        self._huge = asyncio.Semaphore(1)
        self._threads: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def json(self, decode: Callable[[bytes], T], body: bytes, scope: Scope) -> T:
        """Decode a body of JSON.

        Args:
            decode: Decodes it.
            body: The body.
            scope: The request that sent it.
        """
        if len(body) < _HUGE_BYTES:
            return await self._decoded(decode, body, scope, body)
        async with self._huge:
            return await self._decoded(decode, body, scope, body)

    async def binary(self, decode: Callable[[bytes], T], body: bytes, scope: Scope) -> T:
        """Decode a body of one blob, or of a frame. The arguments are those of `json`."""
        return await self._decoded(decode, body, scope, _headers(body))

    async def _decoded(self, decode: Callable[[bytes], T], body: bytes, scope: Scope, text: bytes) -> T:
        if len(body) < _IN_THREAD_BYTES and _is_quick(text):
            return decode(body)
        async with self._threads.setdefault(counted_sender(scope), asyncio.Semaphore(_MOST_THREADS)):
            return await asyncio.to_thread(decode, body)


def _headers(body: bytes) -> bytes:
    """Return the part of a binary body with its strings, arrays and objects: its header, or all of a frame."""
    header = body[: LENGTH_BYTES + int.from_bytes(body[:LENGTH_BYTES], "little")]
    return body if _FORMAT in header else header


def _is_quick(text: bytes) -> bool:
    """Return whether JSON takes a few milliseconds to decode: it is small, or almost all of it is plain numbers.

    The time goes into strings, arrays and objects. A gzip body of 1 kB may inflate to hundreds of thousands of them.
    """
    return len(text) < _QUICK_BYTES or sum(count_byte(text, part) for part in _PARTS) <= _MOST_QUICK_PARTS
