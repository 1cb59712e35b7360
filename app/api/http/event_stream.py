"""Answer with server-sent events for as long as somebody reads them.

sse-starlette does the same for Starlette alone. It finds out about the end of the server by replacing a method of
uvicorn, and knows nothing of credentials that end; a request here hears of both (`Waiting`).
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from fastapi import Response
from starlette.types import Receive, Scope, Send

from app.api.http.access.control import Waiting
from app.api.http.connection.client_connection import SLOW_S, connection_of
from lachesis.wire.events import EVENT_STREAM

HEARTBEAT = b":\n\n"
_CLOSE_TIMEOUT_S = 0.5

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def frame(event_id: str, kind: str, data: bytes) -> bytes:
    """Return an event as text; ``data`` is one line."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id.encode(), kind.encode(), data)


class EventStream(Response):
    """A reply without an end of its own.

    It ends when the client leaves or is too slow, when its credentials end, when the server ends, or after the last
    piece.

    Args:
        pieces: What is sent.
        waiting: Knows when the request ends.
    """

    def __init__(self, pieces: AsyncGenerator[bytes, None], waiting: Waiting) -> None:
        super().__init__(None, headers=_HEADERS, media_type=EVENT_STREAM)
        del self.headers["Content-Length"]
        self._pieces = pieces
        self._waiting = waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        async with aclosing(self._pieces) as pieces:
            with self._waiting:
                first = await anext(pieces)  # an error before it is an answer of its own
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                sending = asyncio.create_task(_send_all(first, pieces, send))
                try:
                    await asyncio.wait({sending, self._waiting.ended}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    sending.cancel()
                    await asyncio.wait({sending})
            try:
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            except TimeoutError:
                connection = connection_of(scope)
                if connection is not None:
                    connection.give_up()
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error


async def _send_all(first: bytes, pieces: AsyncGenerator[bytes, None], send: Send) -> None:
    """Send pieces until there are no more, or the client is too slow for one."""
    piece = first
    with suppress(StopAsyncIteration, TimeoutError):
        while True:
            async with asyncio.timeout(SLOW_S):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await anext(pieces)
