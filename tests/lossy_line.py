"""A connection to Redis that loses replies and delays commands."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.waiting import wait_until

_CHUNK_BYTES = 1 << 20


class LossyLine:
    """Carry bytes between a service and its Redis; lose or hold what the test says.

    Patterns are searched in commands as they are sent: ``EVALSHA``, digest, keys, arguments.

    Attributes:
        lost: Replies of Redis that were lost so far.
    """

    def __init__(self, upstream: str) -> None:
        self.lost = 0
        self._upstream = upstream
        self._lose: re.Pattern[bytes] | None = None
        self._mistake: re.Pattern[bytes] | None = None
        self._hold: re.Pattern[bytes] | None = None
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._answers: dict[asyncio.StreamWriter, int] = {}
        self._answering: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._piece_bytes, self._pause_s = _CHUNK_BYTES, 0.0

    def lose_replies_to(self, pattern: bytes) -> None:
        """From now on, run such commands and lose their replies."""
        self._lose = re.compile(pattern, re.DOTALL)

    def hold(self, pattern: bytes) -> None:
        """From now on, hold such commands back."""
        self._hold = re.compile(pattern, re.DOTALL)

    def mistake(self, pattern: bytes) -> None:
        """From now on, answer such commands as a server of another protocol that took over the address of Redis."""
        self._mistake = re.compile(pattern, re.DOTALL)

    @property
    def holds(self) -> bool:
        """Return whether a command is held now."""
        return bool(self._held)

    def heal(self) -> None:
        """Carry everything again without delay; held commands stay held."""
        self._lose = self._hold = self._mistake = None
        self._piece_bytes, self._pause_s = _CHUNK_BYTES, 0.0

    def slow_down(self, piece_bytes: int, pause_s: float) -> None:
        """From now on carry only so many bytes at a time, each way, and pause after them."""
        self._piece_bytes, self._pause_s = piece_bytes, pause_s

    def cut(self) -> None:
        """Close all connections; the service repeats commands without a reply."""
        for writer in self._writers:
            writer.close()

    async def deliver_late(self) -> None:
        """Send the held commands to Redis and wait until it has run them."""
        assert self._held
        held, self._held = self._held, []
        before = [self._answers[to_redis] for to_redis, _ in held]
        for to_redis, data in held:
            to_redis.write(data)
        for (to_redis, _), answers in zip(held, before, strict=True):
            await wait_until(lambda: self._answers[to_redis] > answers)  # noqa: B023

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the service's."""
        from_redis, to_redis = await asyncio.open_unix_connection(self._upstream)
        self._answers[to_redis] = 0
        answering = asyncio.create_task(self._copy(from_redis, writer, to_redis))
        self._answering.append(answering)
        self._writers += [writer, to_redis]
        while data := await self._read(reader):
            if self._lose and self._lose.search(data) and not answering.cancelled():
                answering.cancel()
                await asyncio.wait({answering})
                self._answering.append(asyncio.create_task(self._swallow(from_redis)))
            if self._mistake and self._mistake.search(data):
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            elif self._hold and self._hold.search(data):
                self._held.append((to_redis, data))
            else:
                to_redis.write(data)
                await self._pause(to_redis)
        writer.close()

    async def hang_up(self) -> None:
        """End every connection."""
        self.cut()
        for answering in self._answering:
            answering.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to_redis: asyncio.StreamWriter
    ) -> None:
        while data := await self._read(reader):
            self._answers[to_redis] += 1
            writer.write(data)
            await self._pause(writer)

    async def _swallow(self, reader: asyncio.StreamReader) -> None:
        while await self._read(reader):
            self.lost += 1

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        return await reader.read(self._piece_bytes)

    async def _pause(self, writer: asyncio.StreamWriter) -> None:
        if self._pause_s:
            await writer.drain()
            await asyncio.sleep(self._pause_s)


@contextlib.asynccontextmanager
async def lossy_line(redis_url: str, socket: Path) -> AsyncIterator[tuple[LossyLine, str]]:
    """Lay a line to a Redis on a unix socket; gives it, and the URL of its other end."""
    parts = urlsplit(redis_url)
    line = LossyLine(unquote(parts.path))
    server = await asyncio.start_unix_server(line.carry, str(socket))
    try:
        yield line, f"unix://{parts.netloc}{socket}"
    finally:
        await line.hang_up()
        server.close()
