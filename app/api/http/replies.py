"""Build replies from bytes, and replies that learn whether they arrived."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

import orjson
from fastapi import Request, Response
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from app.api.http.client_connection import connection_of
from app.api.http.compression import compress_if_accepted
from lachesis.wire.blob import Buffer

_CHUNK_BYTES = 256 * 1024
_IN_THREAD_BYTES = 256 * 1024
_SMALL_BYTES = 16 * 1024
_JOINED_BYTES = 64 * 1024


def json_reply(value: object) -> Response:
    """Build a reply from a small JSON value."""
    return Response(orjson.dumps(value), media_type="application/json")


def model_reply(value: BaseModel, status_code: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Build a reply from a small model."""
    return Response(value.model_dump_json().encode(), status_code, headers, "application/json")


async def compressed(request: Request, content: bytes) -> tuple[bytes, dict[str, str]]:
    """Compress a reply's body if the client accepts it. Large bodies are compressed in a thread."""
    accepted = request.headers.get("accept-encoding")
    if len(content) < _IN_THREAD_BYTES:
        return compress_if_accepted(content, accepted)
    return await asyncio.to_thread(compress_if_accepted, content, accepted)


async def large_json_reply(request: Request, content: bytes, headers: dict[str, str] | None = None) -> Response:
    """Build a reply from JSON text, compressed if that is worth it."""
    body, own = await compressed(request, content)
    return Response(body, headers=own | (headers or {}), media_type="application/json")


def pieces(parts: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield a body's parts in pieces of a good size: large parts are cut, small ones joined."""
    small: list[Buffer] = []
    size = 0
    for part in parts:
        is_small = len(part) < _SMALL_BYTES
        if is_small:
            small.append(part)
            size += len(part)
        if size >= _JOINED_BYTES or (size and not is_small):
            yield b"".join(small)
            small.clear()
            size = 0
        if not is_small:
            yield from (part[start : start + _CHUNK_BYTES] for start in range(0, len(part), _CHUNK_BYTES))
    if size:
        yield b"".join(small)


class WatchedReply(Response):
    """A reply whose sender learns whether it arrived.

    Args:
        parts: The body, in parts of any size; see `pieces`.
        headers: Its headers.
        sent: Awaited once the last byte has left this process.
        broke_off: Awaited if the connection was lost before that, or reset later with bytes unread, or if sending
            failed. It may be awaited twice.
    """

    def __init__(
        self,
        parts: Sequence[Buffer],
        headers: dict[str, str],
        sent: Callable[[], Coroutine[Any, Any, None]],
        broke_off: Callable[[], Coroutine[Any, Any, None]],
        *,
        status_code: int = 200,
        media_type: str = "application/json",
    ) -> None:
        length = {"Content-Length": str(sum(map(len, parts)))}
        super().__init__(None, status_code, {**headers, **length}, media_type)
        self._parts = parts
        self._sent = sent
        self._broke_off = broke_off
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        lost = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_reset() -> None:
            lost.set()
            task = loop.create_task(self._broke_off())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        connection = connection_of(scope)
        if connection is not None:
            connection.on_reset(on_reset)
            if connection.broken:
                return
        parts, self._parts = self._parts, ()  # the connection keeps the reply, and must not keep megabytes
        try:
            await self._write(parts, send, lost)
        except BaseException:
            await self._broke_off()
            raise
        if connection is not None:
            await connection.flushed()
        if not lost.is_set():
            await self._sent()

    async def _write(self, parts: Sequence[Buffer], send: Send, lost: asyncio.Event) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in pieces(parts):
            if lost.is_set():
                return
            # `send` waits while the client is behind, so a client that left is noticed.
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if not lost.is_set():
            await send({"type": "http.response.body", "body": b"", "more_body": False})
