"""Requests over connections that break."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from lachesis import Settings
from lachesis._transport.http import Sender, read_more_at_once
from lachesis._transport.protocol import Call, get_json, read_body
from lachesis._transport.run_calls import RunCalls
from lachesis.errors import LachesisError, Unreachable
from tests.clients.conftest import settings_of
from tests.clients.proxy import CuttingProxy, Direction
from tests.ports import free_port

VERSION = get_json("/version")


async def sizes(settings: Settings, proxy: CuttingProxy) -> dict[Direction, int]:
    """Bytes of the request and its reply."""
    before = dict(proxy.passed)
    async with Sender(settings) as sender:
        await sender.send(VERSION)
    return {"request": proxy.passed["request"] - before["request"], "reply": proxy.passed["reply"] - before["reply"]}


@pytest.mark.parametrize("direction", ["request", "reply"])
async def test_a_request_that_is_cut_anywhere_is_answered_all_the_same(
    settings: Settings, proxy: CuttingProxy, direction: Direction
) -> None:
    whole = (await sizes(settings, proxy))[direction]
    cuts = sorted({0, 1, 4, whole // 3, whole // 2, whole - 2, whole - 1})
    async with Sender(settings) as sender:
        for done, after_bytes in enumerate(cuts, start=1):
            await sender.send(VERSION)  # so that it is a kept connection that breaks
            proxy.cut(direction, after_bytes)
            assert (await sender.send(VERSION))["name"] == "lachesis"
            assert proxy.cuts == done, f"nothing was cut after {after_bytes} of {whole} bytes"


async def test_a_reply_without_a_length_is_read_to_its_end() -> None:
    """A proxy in between may send it on in chunks."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for chunk in (b'{"name": ', b'"lachesis"}', b""):
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await writer.drain()
        writer.close()

    port = free_port()
    async with (
        await asyncio.start_server(answer, "127.0.0.1", port),
        Sender(Settings(url=f"http://127.0.0.1:{port}")) as sender,
    ):
        assert await sender.send(VERSION) == {"name": "lachesis"}


@asynccontextmanager
async def first_answering(first: bytes) -> AsyncIterator[str]:
    """Run a server that gives this answer to its first request, and a good one to the next. Return its URL."""
    answers = [first, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop(0))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("length", [10**15, 10**19])
async def test_a_reply_longer_than_the_memory_counts_as_a_broken_one(length: int) -> None:
    """Such as that of a gateway in trouble. Groups wait for the service."""
    too_long = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n{}" % length
    async with first_answering(too_long) as url, Sender(Settings(url)) as sender:
        assert await sender.send(VERSION) == {}
    async with first_answering(too_long) as url, Sender(Settings(url, retry_budget_s=0)) as sender:
        with pytest.raises(Unreachable, match=f"a reply of {length} bytes was announced"):
            await sender.send(VERSION)


async def test_a_reply_in_chunks_is_read_whole_whatever_length_it_names() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n[1, 2]\n\r\n0\r\n\r\n"
    async with first_answering(chunked) as url, Sender(Settings(url)) as sender:
        assert await sender.send(VERSION) == [1, 2]


async def test_a_reply_without_content_has_no_body_whatever_length_it_names() -> None:
    without_content = b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n"
    async with first_answering(without_content) as url, Sender(Settings(url)) as sender:
        assert await sender.send(Call("GET", "/", read_body)) == b""


async def test_a_large_reply_is_read_in_large_pieces() -> None:
    """Also the next one on the same connection."""
    body = bytes(range(256)) * 2**15  # 8 MiB

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(answer, "127.0.0.1", port), httpx.AsyncClient() as http:
        for _ in range(2):
            async with http.stream("GET", f"http://127.0.0.1:{port}") as response:
                read_more_at_once(response)
                pieces = [piece async for piece in response.aiter_raw()]
            assert b"".join(pieces) == body
            assert max(map(len, pieces)) > 64 * 1024


async def test_without_a_budget_a_broken_request_is_an_error_that_says_what_broke(
    proxy: CuttingProxy,
) -> None:
    async with Sender(settings_of(proxy, retry_budget_s=0)) as sender:
        proxy.cut("reply", 30)
        with pytest.raises(Unreachable, match=r"GET http://.*/version: RemoteProtocolError"):
            await sender.send(VERSION)
        proxy.cut("reply", 0)
        with pytest.raises(Unreachable, match=r"disconnected without sending a response$"):  # and no stop: more follows
            await sender.send(VERSION)


async def test_nobody_there_is_an_error_at_the_end_of_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    """It says where and for how long; the log said at once that something is being waited for, and once."""
    where = f"http://127.0.0.1:{free_port()}"
    async with Sender(Settings(url=where.replace("//", "//me:secret@"), retry_budget_s=0.5)) as sender:
        with pytest.raises(Unreachable, match="ConnectError") as raised:
            await sender.send(VERSION)
    assert re.search(rf"no answer in \d+\.\d s, \d+ attempts: is Lachesis running at {where}/?\?$", str(raised.value))
    (said,) = [record for record in caplog.records if record.name.startswith("lachesis")]
    assert said.levelname == "WARNING"
    assert re.search(rf"is Lachesis running at {where}/?\? Trying again for 0\.5 s$", said.getMessage())
    assert "secret" not in str(raised.value) + said.getMessage()


@asynccontextmanager
async def slow_to_break(breaks: int) -> AsyncIterator[str]:
    """Run a server that breaks its first connections after 0.3 s each, and answers on the next. Return its URL."""
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        if connections <= breaks:
            await asyncio.sleep(0.3)
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_the_budget_counts_from_the_first_failure() -> None:
    """A long wait, such as that for a batch, does not use it up. The error tells the whole time."""
    async with slow_to_break(1) as url, Sender(Settings(url, retry_budget_s=0.2)) as sender:
        assert await sender.send(VERSION) == {}
    async with slow_to_break(3) as url, Sender(Settings(url, retry_budget_s=0.2)) as sender:
        with pytest.raises(Unreachable, match=r"no answer in .* s, 2 attempts") as raised:
            await sender.send(VERSION)
    (told,) = re.findall(r"no answer in ([\d.]+) s", str(raised.value))
    assert float(told) >= 0.6


async def test_a_service_that_says_nothing_is_given_up(proxy: CuttingProxy) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    proxy.upstream = server.sockets[0].getsockname()[1]
    async with server, Sender(settings_of(proxy, timeout_s=0.2, retry_budget_s=0)) as sender:
        with pytest.raises(Unreachable, match="ReadTimeout"):
            await sender.send(VERSION)


async def test_a_service_that_comes_back_is_found(settings: Settings, proxy: CuttingProxy) -> None:
    port, proxy.upstream = proxy.upstream, None
    troubles: list[LachesisError] = []

    def note(trouble: LachesisError) -> None:
        troubles.append(trouble)
        if len(troubles) == 3:
            proxy.upstream = port

    async with Sender(settings) as sender:
        assert (await sender.send(VERSION, 30, note))["name"] == "lachesis"
    assert [type(trouble) for trouble in troubles] == [Unreachable] * 3


async def test_what_was_removed_before_the_answer_was_lost_is_removed(settings: Settings, proxy: CuttingProxy) -> None:
    """The repetition of a DELETE finds nothing: so the first was carried out."""
    async with Sender(settings) as sender:
        await sender.send(VERSION)
        proxy.cut("reply", 0)
        await sender.send(RunCalls("none").delete())
        assert proxy.cuts == 1
