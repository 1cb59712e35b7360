"""When a lease is extended. A stub service gives the answers of each test, and pauses are recorded, not waited for."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lachesis import LeaseLost, Settings
from lachesis._prefetch.leased import HeldLease
from lachesis._transport.http import Sender
from lachesis._transport.protocol import LeaseCalls

Reply = tuple[int, dict[str, Any], dict[str, str]]
"""Status, body and headers."""

LASTS_S = 90.0
CALLS = LeaseCalls("/v1/runs/math/batches/b1", "l1")


def extended(lease_s: float) -> Reply:
    return 200, {"batch": "b1", "state": "held", "lease_s": lease_s}, {}


def busy(retry_after_s: int) -> Reply:
    problem = {"code": "store_unavailable", "detail": "Redis does not answer"}
    return 503, problem, {"Retry-After": str(retry_after_s)}


LOST: Reply = (409, {"code": "lease_lost", "detail": "it is held by another trainer"}, {})


class Story:
    """What happened to a lease: the requests that came, and the pauses before them."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.pauses_s: list[float] = []
        self.is_over = asyncio.Event()
        self._replies = list(replies)

    async def sleep(self, pause_s: float) -> None:
        """Note the pause. The one after the last reply does not end."""
        self.pauses_s.append(pause_s)
        if not self._replies:
            self.is_over.set()
            await asyncio.Event().wait()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        (length,) = [int(line.partition(":")[2]) for line in head if line.startswith("content-length:")]
        self.requests.append((head[0].split()[1], json.loads(await reader.readexactly(length))))
        status, body, headers = self._replies.pop(0)
        sent = json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(sent)}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + sent)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def lease_of(story: Story, asked_s: float | None = None) -> AsyncIterator[HeldLease]:
    server = await asyncio.start_server(story.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Sender(Settings(url, run="math"), sleep=story.sleep) as sender:
        lease = HeldLease(CALLS, LASTS_S, sender, asked_s)
        yield lease
        lease.forget()


async def test_a_lease_is_extended_when_a_third_of_it_has_passed() -> None:
    story = Story([extended(60), extended(30)])
    async with lease_of(story, asked_s=45.0) as lease:
        await asyncio.wait_for(story.is_over.wait(), 90)
        assert lease.held
    assert story.pauses_s == pytest.approx([30, 20, 10])
    assert story.requests == [("/v1/runs/math/batches/b1/extend", {"lease": "l1", "lease_s": 45.0})] * 2


async def test_an_extension_that_was_refused_for_a_moment_is_tried_again_after_a_second() -> None:
    """The service asks for more patience than the lease has: the request is not repeated, but the next one comes."""
    story = Story([busy(retry_after_s=1000), extended(60)])
    async with lease_of(story) as lease:
        await asyncio.wait_for(story.is_over.wait(), 90)
        assert lease.held
    assert story.pauses_s == pytest.approx([30, 1, 20])


@pytest.mark.parametrize(("retry_after_s", "repeated"), [(59, True), (60, False)])
async def test_an_extension_is_repeated_only_while_the_lease_lasts(retry_after_s: int, repeated: bool) -> None:
    """Of 90 s, 60 are left when it is extended."""
    story = Story([busy(retry_after_s), extended(60)])
    async with lease_of(story):
        await asyncio.wait_for(story.is_over.wait(), 90)
    first, between, last = story.pauses_s
    assert (first, last) == (pytest.approx(30), pytest.approx(20))
    assert 59 <= between <= 59.1 if repeated else between == 1


async def test_a_lease_that_was_lost_is_not_extended_any_more() -> None:
    story = Story([LOST, LOST])
    async with lease_of(story) as lease:
        await asyncio.wait_for(lease._extending, 90)
        assert not lease.held
        assert len(story.requests) == 1
        with pytest.raises(LeaseLost, match="another trainer"):
            await lease.ack()


async def test_an_error_that_does_not_pass_ends_the_extensions() -> None:
    story = Story([(403, {"code": "foreign_host", "detail": "no such host"}, {})])
    async with lease_of(story) as lease:
        await asyncio.wait_for(lease._extending, 90)
        assert not lease.held
    assert story.pauses_s == pytest.approx([30])
