"""Read streams of events as a client does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.scenarios.native_calls import RUN

EVENTS = f"{RUN}/events"
LONG_S = 60


class Stream:
    """A stream of events as a client reads it."""

    def __init__(self, reply: httpx.Response) -> None:
        self.reply = reply
        self.heartbeats = 0
        self._lines = reply.aiter_lines()

    async def event(self) -> dict[str, Any] | None:
        """Read the next event; None at the end of the stream."""
        said: dict[str, str] = {}
        async with asyncio.timeout(LONG_S):
            async for line in self._lines:
                name, colon, value = line.partition(": ")
                if colon:
                    said[name] = value
                elif line == ":":
                    self.heartbeats += 1
                elif "data" in said:
                    found: dict[str, Any] = json.loads(said["data"])
                    assert (said.get("id"), said["event"]) == (found.get("id"), found["kind"])
                    return found
                else:
                    said.clear()
        return None

    async def until(self, kind: str) -> list[dict[str, Any]]:
        """Read events up to the first one of a kind."""
        found: list[dict[str, Any]] = []
        while not found or found[-1]["kind"] != kind:
            event = await self.event()
            assert event is not None, found
            found.append(event)
        return found


@asynccontextmanager
async def following(client: httpx.AsyncClient, url: str = EVENTS, **headers: str) -> AsyncIterator[Stream]:
    """Follow a run over a connection of its own. The stream has begun."""
    given = httpx.Headers(client.headers)
    given.update({"accept": "text/event-stream"} | headers)
    async with (
        httpx.AsyncClient(base_url=client.base_url, timeout=LONG_S) as own,
        own.stream("GET", url, headers=given) as reply,
    ):
        assert reply.status_code == 200, await reply.aread()
        yield Stream(reply)
