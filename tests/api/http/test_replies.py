"""A reply that must know whether it arrived."""

import asyncio
import contextlib
import gc
import gzip
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from app.api.http.connection.client_connection import ClientConnection, connection_of
from app.api.http.replies import WatchedReply, pieces, streamed
from app.services.batches.request import OutgoingBatch
from lachesis.wire.groups import SAFETENSORS
from tests.api.atropos_calls import group, post, register
from tests.api.conftest import served_to_one
from tests.waiting import wait_until

KB = 1024


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is let go here is let go at once, not when the garbage collector comes by."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@given(st.lists(st.sampled_from([0, 1, 200, 16 * KB - 1, 16 * KB, 256 * KB, 256 * KB + 1, 600 * KB]), max_size=40))
def test_a_body_is_sent_in_pieces_that_are_neither_large_nor_very_many(sizes: list[int]) -> None:
    parts = [bytes([n % 256]) * size for n, size in enumerate(sizes)]
    sent = list(pieces(parts))
    assert b"".join(sent) == b"".join(parts)
    assert all(0 < len(piece) <= 256 * KB for piece in sent)
    assert len(sent) <= 1 + 2 * sum(sizes) // (16 * KB)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize(("count", "at_once"), [(2000, True), (20_000, False)])
async def test_others_have_turns_while_many_small_parts_are_computed(count: int, at_once: bool, encoding: str) -> None:
    turns, computed = 0, Counter[int]()

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def parts() -> Iterator[bytes]:
        for _ in range(count):
            computed[turns] += threading.current_thread() is threading.main_thread()
            yield b"x" * 100

    others = asyncio.create_task(take_turns())
    await asyncio.sleep(0)
    request = Request({"type": "http", "headers": [(b"accept-encoding", encoding.encode())]})
    body, headers = await streamed(request, parts())
    pieces = list(body) if isinstance(body, Sequence) else [piece async for piece in body]
    others.cancel()
    assert max(computed.values()) <= 256
    sent = b"".join(pieces)
    assert (gzip.decompress(sent) if headers.get("Content-Encoding") == "gzip" else sent) == b"x" * 100 * count
    assert isinstance(body, Sequence) is at_once
    assert len(pieces) <= 2 + len(sent) // (32 * KB)


async def test_a_reply_whose_sending_is_cancelled_has_broken_off() -> None:
    """As when the service stops while a client is slow to read; else its batch would be taken for on its way."""
    heard: list[str] = []
    is_behind = asyncio.Event()

    async def sent() -> None:
        heard.append("sent")

    async def broke_off() -> None:
        heard.append("broke off")

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        is_behind.set()
        await asyncio.Event().wait()

    reply = WatchedReply([b"a batch"], {}, sent, broke_off)
    sending = asyncio.create_task(reply({"type": "http"}, receive, send))
    await is_behind.wait()
    sending.cancel()
    await asyncio.wait({sending})
    assert sending.cancelled()
    assert heard == ["broke off"]


async def test_a_reply_counts_as_sent_once_it_has_left_this_process() -> None:
    """If a process were killed in between, a batch would count as sent that its trainer never gets."""
    body = b"x" * 10 * KB
    arrived: list[bytes] = []
    counted = asyncio.Event()

    async def sent() -> None:
        with contextlib.suppress(BlockingIOError):
            arrived.append(client.recv(100 * KB))
        counted.set()

    async def broke_off() -> None:
        counted.set()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await WatchedReply([body], {}, sent, broke_off)(scope, receive, send)

    async with served_to_one(app) as client:
        await counted.wait()
        assert b"".join(arrived).endswith(b"\r\n\r\n" + body)


class _Large(bytearray):
    """A body that says when it is let go: bytes have no weak references."""


@pytest.mark.usefixtures("no_collector")
async def test_a_reply_whose_client_takes_nothing_breaks_off_and_is_released() -> None:
    """The connection is not only closed: then it would keep the reply until the client leaves."""
    heard: list[str] = []
    bodies: list[weakref.ref[_Large]] = []
    connections: list[ClientConnection | None] = []

    async def sent() -> None:
        heard.append("sent")

    async def broke_off() -> None:
        heard.append("broke off")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = _Large(64 * KB * KB)
        bodies.append(weakref.ref(body))
        connections.append(connection_of(scope))
        reply = WatchedReply([memoryview(body)], {}, sent, broke_off, slow_s=0.05)
        del body
        await reply(scope, receive, send)

    async def is_released() -> bool:
        return bool(bodies) and bodies[0]() is None and connections[0] is not None and connections[0].broken

    async with served_to_one(app):
        await wait_until(is_released)
    assert set(heard) == {"broke off"}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(("ask", "accept"), [("native", SAFETENSORS), ("native", "application/json"), ("atropos", "")])
async def test_a_batch_is_not_kept_in_memory_once_it_was_sent(client: httpx.AsyncClient, ask: str, accept: str) -> None:
    """Its connection stays, and so do the reply and who holds the batch; at 6 MB a trainer that would be felt."""
    await register(client, 4)
    await post(client, group(4))
    if ask == "native":
        reply = await client.post("/v1/runs/default/batches", headers={"Accept": accept})
    else:
        reply = await client.get("/batch")
    assert len(reply.content) > 200

    async def released() -> bool:
        objects = gc.get_objects()
        kept = [one._body for one in objects if isinstance(one, WatchedReply)]
        kept += [one.payloads for one in objects if isinstance(one, OutgoingBatch)]
        return bool(kept) and not any(kept)

    await wait_until(released)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("surface", ["native", "atropos"])
async def test_a_large_batch_in_json_is_computed_while_it_is_sent(
    client: httpx.AsyncClient, surface: str, encoding: str
) -> None:
    await register(client, 16, max_token_len=9000)
    tokens = [[n * 1000 + m for m in range(9000)] for n in range(8)]
    large = group(8) | {
        "tokens": tokens,
        "masks": tokens,
        "inference_logprobs": [[-m / 7 for m in row] for row in tokens],
    }
    for _ in range(2):
        await post(client, large)
    headers = {"Accept-Encoding": encoding, "Accept": "application/json"}
    if surface == "native":
        reply = await client.post("/v1/runs/default/batches", headers=headers)
        groups = reply.json()["groups"]
    else:
        reply = await client.get("/batch", headers=headers)
        groups = reply.json()["batch"]
    assert reply.headers.get("content-encoding", "identity") == encoding
    assert "content-length" not in reply.headers
    assert len(groups) == 2
    assert all(one[name] == large[name] for one in groups for name in ("tokens", "masks", "inference_logprobs"))


async def test_a_large_batch_that_breaks_off_comes_again(client: httpx.AsyncClient) -> None:
    await register(client, 8, max_token_len=99_000)
    await post(client, group(8) | dict.fromkeys(("tokens", "masks"), [list(range(99_000))] * 8))
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write(b"GET /batch HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"transfer-encoding: chunked" in (await reader.readuntil(b"\r\n\r\n")).lower()
    writer.close()
    await wait_until(lambda: _has_returned(client))
    again = (await client.get("/batch")).json()["batch"]
    assert [len(one["tokens"]) for one in again] == [8]


async def _has_returned(client: httpx.AsyncClient) -> bool:
    leases = (await client.get("/status")).json()["leases"]
    return [lease["state"] for lease in leases] == ["returned"]
