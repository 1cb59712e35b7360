"""A TCP proxy that breaks connections where a test says so."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Literal, Self

Direction = Literal["request", "reply"]


class CuttingProxy:
    """Forward everything to a service on the loopback, until `cut` is called.

    Attributes:
        upstream: Port of the service; None: there is none, and connections are closed at once.
        passed: Bytes that went through so far, by direction.
        cuts: Connections that were cut.
        refused: Connections that were closed because there was no service.
        lets_replies_pass: Replies wait until it is set, as it is at first.
    """

    def __init__(self, upstream: int | None) -> None:
        self.upstream = upstream
        self.passed: dict[Direction, int] = {"request": 0, "reply": 0}
        self.cuts = 0
        self.refused = 0
        self.lets_replies_pass = asyncio.Event()
        self.lets_replies_pass.set()
        self._cuts_to_come: Iterator[tuple[Direction, int]] = iter(())
        self._cut_after: dict[Direction, int | None] = {"request": None, "reply": None}
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self, direction: Direction, after_bytes: int) -> None:
        """Close a connection both ways as soon as that many more bytes went through, and be harmless again."""
        self._cut_after[direction] = after_bytes

    def keep_cutting(self, cuts: Iterable[tuple[Direction, int]]) -> None:
        """Cut as `cut` does, each time as soon as the cut before has happened: by what has passed, not by time."""
        self._cuts_to_come = iter(cuts)
        self._cut_next()

    def _cut_next(self) -> None:
        if (cut := next(self._cuts_to_come, None)) is not None:
            self.cut(*cut)

    async def drop_all(self) -> None:
        """Close all connections."""
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        await self.drop_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(contextlib.suppress(asyncio.CancelledError))  # by us; streams would log it
            stack.callback(self._connections.discard, task)
            stack.callback(writer.close)
            if self.upstream is None:
                self.refused += 1
                return
            service_reader, service_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
            stack.callback(service_writer.close)
            ways = [
                asyncio.create_task(self._pass(reader, service_writer, "request")),
                asyncio.create_task(self._pass(service_reader, writer, "reply")),
            ]
            for way in ways:
                stack.callback(way.cancel)
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(64 * 1024):
                if direction == "reply":
                    await self.lets_replies_pass.wait()
                left = self._cut_after[direction]
                if left is not None:
                    piece = piece[:left]
                    self._cut_after[direction] = left - len(piece)
                self.passed[direction] += len(piece)
                writer.write(piece)
                await writer.drain()
                if self._cut_after[direction] == 0:
                    break
        if self._cut_after[direction] == 0:
            self._cut_after[direction] = None
            self.cuts += 1
            self._cut_next()
