"""Build replies from bytes, and replies that learn whether they arrived."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import orjson
from fastapi import Request, Response
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from app.api.http.bodies.content_budget import ContentShare
from app.api.http.compression import accepts_gzip, compress_if_accepted, gzipped
from app.api.http.connection.client_connection import SLOW_S, ClientConnection, connection_of
from app.tuning import return_memory
from lachesis.wire.blob import Buffer

_MOST_HEADER_CHARACTERS = 1000  # clients refuse headers of some kilobytes; `explain` has the whole text
_CHUNK_BYTES = 256 * 1024
_COMPUTED_BYTES = 1024 * 1024  # at once, or one group, before other requests have a turn: 2 ms
_COMPUTED_PARTS = 128  # the same, of small groups: some 20, because each has about six parts
_IN_THREAD_BYTES = 256 * 1024
_SMALL_BYTES = 16 * 1024
_JOINED_BYTES = 64 * 1024
_LARGE_BYTES = 64 * 1024 * 1024


def json_reply(value: object) -> Response:
    """Build a reply from a small JSON value."""
    return Response(orjson.dumps(value), media_type="application/json")


def model_reply(value: BaseModel, status_code: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Build a reply from a small model."""
    return Response(value.model_dump_json().encode(), status_code, headers, "application/json")


def varied_by_accept(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of a reply that also depends on ``Accept``."""
    return headers | {"Vary": ", ".join(filter(None, ("Accept", headers.get("Vary"))))}


def waiting_header(reason: str, detail: str) -> dict[str, str]:
    """Return the header that says why a caller waits.

    Names in the detail may have any characters. A header has printable ASCII, and others as escapes.
    """
    why = f"{reason}: {detail}".replace("…", "...").encode("unicode_escape").decode()
    return {"Lachesis-Waiting": why[:_MOST_HEADER_CHARACTERS]}


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


async def large_model_reply(request: Request, value: BaseModel) -> Response:
    """Build a reply from a large model, compressed if that is worth it."""
    return await large_json_reply(request, value.model_dump_json().encode())


async def streamed(request: Request, parts: Iterator[Buffer]) -> tuple["Body", dict[str, str]]:
    """Compute a body while it is sent, compressed if the client accepts it.

    A body of at most 256 KiB is computed first, and has a Content-Length. Larger ones are compressed in a thread.

    Args:
        request: The request that is answered.
        parts: Compute the body, part by part.

    Returns:
        The body, and its headers.
    """
    begin: list[Buffer] = []
    while computed := _next_parts(parts):
        if begin:
            await asyncio.sleep(0)
        begin += computed
        if sum(map(len, begin)) > _CHUNK_BYTES:
            break
    else:
        content, headers = await compressed(request, b"".join(begin))
        return [content], headers
    body, headers = chain(begin, parts), {"Vary": "Accept-Encoding"}
    if accepts_gzip(request.headers.get("accept-encoding", "")):
        return _in_thread(gzipped(body)), headers | {"Content-Encoding": "gzip"}
    return _in_turns(body), headers


async def _in_turns(parts: Iterator[Buffer]) -> AsyncIterator[Buffer]:
    """Compute parts between the turns of other requests.

    orjson holds the GIL, so a thread would delay them as long, and switching threads costs 0.2 ms each time.
    """
    ready: list[Buffer] = []
    while computed := _next_parts(parts):
        ready += computed
        if sum(map(len, ready)) >= _JOINED_BYTES:
            for piece in pieces(ready):
                yield piece
            ready.clear()
        await asyncio.sleep(0)
    for piece in pieces(ready):
        yield piece


async def _in_thread(parts: Iterator[Buffer]) -> AsyncIterator[Buffer]:
    while computed := await asyncio.to_thread(_next_parts, parts):
        for piece in pieces(computed):
            yield piece


def _next_parts(parts: Iterator[Buffer]) -> list[Buffer]:
    """Compute parts until there is more than 1 MiB, or there are many; an empty list at the end."""
    computed: list[Buffer] = []
    size = 0
    for part in parts:
        computed.append(part)
        size += len(part)
        if size > _COMPUTED_BYTES or len(computed) == _COMPUTED_PARTS:
            break
    return computed


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
            whole = memoryview(part)  # a slice of bytes would be a copy
            yield from (whole[start : start + _CHUNK_BYTES] for start in range(0, len(part), _CHUNK_BYTES))
    if size:
        yield b"".join(small)


Body = Sequence[Buffer] | AsyncIterable[Buffer]
"""Parts of any size, or pieces of a good size that are still to be computed."""


async def _do_nothing() -> None:
    pass


class WatchedReply(Response):
    """A reply whose sender learns whether it arrived.

    Args:
        body: The body. One that is still to be computed has no Content-Length.
        headers: Its headers.
        sent: Awaited once the last byte has left this process.
        broke_off: Awaited if the connection was lost before that, or reset later with bytes unread, or if sending
            failed. It may be awaited twice.
        slow_s: A client that takes nothing for so long is dropped, and the reply has broken off. None: never.
    """

    def __init__(
        self,
        body: Body,
        headers: dict[str, str],
        sent: Callable[[], Coroutine[Any, Any, None]] = _do_nothing,
        broke_off: Callable[[], Coroutine[Any, Any, None]] = _do_nothing,
        *,
        status_code: int = 200,
        media_type: str = "application/json",
        slow_s: float | None = None,
    ) -> None:
        super().__init__(None, status_code, headers, media_type)
        if isinstance(body, Sequence):
            self.headers["Content-Length"] = str(sum(map(len, body)))
        else:
            del self.headers["Content-Length"]
        self._body: Body = body
        self._sent = sent
        self._broke_off = broke_off
        self._slow_s = slow_s
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
        body, self._body = self._body, ()  # the connection keeps the reply, and must not keep megabytes
        try:
            written_bytes = await self._write(body, send, lost, connection)
        except BaseException:
            await self._broke_off()
            raise
        if connection is not None:
            await self._in_time(connection.flushed(), lost, connection)
        if not lost.is_set():
            await self._sent()
        if written_bytes >= _LARGE_BYTES:
            del body
            await asyncio.to_thread(return_memory)

    async def _in_time(self, step: Awaitable[None], lost: asyncio.Event, connection: ClientConnection | None) -> None:
        """Await a step of sending. End the connection if the client takes too long."""
        try:
            async with asyncio.timeout(self._slow_s):
                await step
        except TimeoutError:
            if connection is None:
                raise
            lost.set()
            connection.give_up()
            await self._broke_off()

    async def _write(self, body: Body, send: Send, lost: asyncio.Event, connection: ClientConnection | None) -> int:
        """Send the body unless the connection is lost; return how many bytes of it were sent."""
        written_bytes = 0
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await self._in_time(send(start), lost, connection)
        async for piece in _each(pieces(body)) if isinstance(body, Sequence) else body:
            if lost.is_set():
                return written_bytes
            # `send` waits while the client is behind, so a client that left is noticed.
            message = {"type": "http.response.body", "body": piece, "more_body": True}
            await self._in_time(send(message), lost, connection)
            written_bytes += len(piece)
        if not lost.is_set():
            await self._in_time(send({"type": "http.response.body", "body": b"", "more_body": False}), lost, connection)
        return written_bytes


def budgeted_reply(
    body: Body, headers: dict[str, str], share: ContentShare, media_type: str = "application/json"
) -> WatchedReply:
    """Build a reply that holds ``share`` until it has left this process or broken off. It drops slow clients."""
    return WatchedReply(body, headers, share.release, share.release, media_type=media_type, slow_s=SLOW_S)


async def _each(parts: Iterator[Buffer]) -> AsyncIterator[Buffer]:
    for part in parts:
        yield part
