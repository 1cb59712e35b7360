"""Replies with fragments of a replay buffer."""

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.codec.replay_sample import fragment_reply, fragments_reply
from app.api.http.client_connection import ClientConnection, connection_of
from app.api.http.server_protocol import make_protocol
from app.store.replay.entries import FragmentRecord
from tests.api.conftest import serving
from tests.waiting import wait_until

MIB = 1024 * 1024
RECORD = FragmentRecord("f", 1, 64 * MIB, "", "w", 1, 0, 0, '{"tensors": {}}')


@pytest.mark.parametrize(
    "reply",
    [lambda: fragment_reply(RECORD, bytes(64 * MIB)), lambda: fragments_reply([(RECORD, bytes(64 * MIB))])],
    ids=["one fragment", "a frame"],
)
async def test_a_client_that_takes_nothing_of_a_reply_is_dropped(
    reply: Callable[[], Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection would keep all of the fragments in memory."""
    monkeypatch.setattr("app.api.codec.replay_sample.SLOW_S", 0.05)
    connections: list[ClientConnection | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connections.append(connection_of(scope))
        await reply()(scope, receive, send)

    def is_dropped() -> bool:
        return bool(connections) and connections[0] is not None and connections[0].broken

    config = uvicorn.Config(app, http=make_protocol(5.0), lifespan="off", log_level="warning")
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        async with serving(config, listener):
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, listener.getsockname())
            client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await wait_until(is_dropped)
