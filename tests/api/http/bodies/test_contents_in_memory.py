"""Everything that reads contents of groups and fragments holds room in one memory until its reply has left."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import numpy as np

from app.api.http.bodies.content_budget import CONTENTS_BYTES
from lachesis.wire.groups import SAFETENSORS
from tests.api.groups.test_listing import GROUPS, RUN, group, made
from tests.api.native_groups import BINARY, in_binary
from tests.api.replay.calls import in_binary as fragment_in_binary
from tests.waiting import wait_until

SIXTEENTH = CONTENTS_BYTES // 16
Read = Callable[[], Awaitable[httpx.Response]]


async def unread(client: httpx.AsyncClient, url: str) -> asyncio.StreamWriter:
    """Ask for a large reply, and read its head only."""
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write(f"GET {url} HTTP/1.1\r\nHost: localhost\r\nAccept: {SAFETENSORS}\r\n\r\n".encode())
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    return writer


async def stored_fragment(client: httpx.AsyncClient, size_bytes: int) -> str:
    """Make a buffer with a fragment of this size; return its id."""
    assert (await client.put(f"{RUN}/replay", json={"max_bytes": CONTENTS_BYTES})).status_code == 200
    sent = fragment_in_binary(0, tensors={"x": np.zeros(size_bytes, np.uint8)})
    reply = await client.post(f"{RUN}/replay/fragments", content=sent, headers=BINARY)
    assert reply.status_code == 201, reply.text
    fragment: str = reply.json()["fragments"][0]["fragment"]
    return fragment


async def test_fragments_that_a_client_leaves_unread_hold_their_room_until_it_goes(client: httpx.AsyncClient) -> None:
    await made(client)
    fragment = await stored_fragment(client, 6 * SIXTEENTH)
    large = in_binary(group("large") | {"tensors": {"x": np.zeros(5 * SIXTEENTH, np.uint8)}})
    assert (await client.post(GROUPS, content=large, headers=BINARY)).status_code == 201
    url = f"{RUN}/replay/fragments/{fragment}"
    reads: dict[str, Read] = {
        "a fragment": lambda: client.get(url),
        "fragments": lambda: client.post(f"{RUN}/replay/fragments/fetch", json={"fragments": [fragment]}),
        "for an annotation": lambda: client.post(
            f"{GROUPS}/large/annotations", json={"annotations": {"entropy": [[1, 2, 3], [4]]}}
        ),
        "the newest group": lambda: client.get("/runs/math/atropos/latest_example"),
    }
    unread_replies = [await unread(client, url) for _ in range(2)]
    refused = await asyncio.gather(*(read() for read in reads.values()))
    for name, reply in zip(reads, refused, strict=True):
        assert (reply.status_code, reply.json()["code"]) == (429, "too_many_reads"), name
        assert int(reply.headers["retry-after"]) > 0
    for writer in unread_replies:
        writer.close()

    async def is_read() -> bool:
        return (await client.get(url)).status_code == 200

    await wait_until(is_read)
    for name, read in reads.items():
        for _ in range(4):
            assert (await read()).is_success, f"{name}: who reads leaves nothing behind"
    assert await is_read()
