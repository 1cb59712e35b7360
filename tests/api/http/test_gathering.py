"""What is written in a turn of the event loop leaves together, and before the connection ends in that turn."""

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from app.api.http.connection.protocol_factory import make_protocol
from app.api.http.replies import WatchedReply
from tests.waiting import wait_until

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Ending = Callable[[socket.socket, ServerState], object]

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Answered:
    """A client whose connection ends in the turn of its first answer, and a record of what happened to its replies."""

    def __init__(self, asks: int, ending: Ending) -> None:
        self.client = socket.socket()
        self.heard: list[str] = []
        self.trouble: list[object] = []
        self._asks = asks
        self._ending = ending
        self._state = ServerState()

    async def until(self, heard: int) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, trouble: self.trouble.append(trouble))
        config = uvicorn.Config(self._app, interface="asgi3", ws="none", lifespan="off", log_config=None)
        protocol: Callable[..., asyncio.Protocol] = make_protocol(5)
        server = await loop.create_server(
            lambda: protocol(config=config, server_state=self._state, app_state={}), "127.0.0.1", 0
        )
        try:
            self.client.connect(server.sockets[0].getsockname())
            self.client.sendall(GET * self._asks)
            await wait_until(self._is_over(heard), pause_s=0.01)
        finally:
            server.close()
        gc.collect()  # asyncio reports an exception that nobody retrieved when its future is collected

    def _is_over(self, heard: int) -> Callable[[], Awaitable[bool]]:
        async def is_over() -> bool:
            return len(self.heard) >= heard and not self._state.connections and not self._state.tasks

        return is_over

    async def _is_gone(self) -> bool:
        return not self._state.connections

    async def _app(self, scope: Message, receive: Receive, send: Send) -> None:
        answered_before = bool(self.heard)
        if answered_before:
            await wait_until(self._is_gone, pause_s=0)
        await WatchedReply([b"the reply"], {}, self._hear("sent"), self._hear("broke off"))(scope, receive, send)
        if not answered_before:
            self._ending(self.client, self._state)

    def _hear(self, what: str) -> Callable[[], Any]:
        async def hear() -> None:
            self.heard.append(what)

        return hear


def _shut_down(_: socket.socket, server: ServerState) -> None:
    for connection in list(server.connections):
        connection.shutdown()


@pytest.mark.parametrize("ending", [lambda client, _: client.shutdown(socket.SHUT_WR), _shut_down])
def test_a_reply_leaves_before_its_connection_is_closed_in_the_same_turn(ending: Ending) -> None:
    answered = Answered(1, ending)
    uvloop.run(answered.until(1))
    with answered.client as client, client.makefile("rb") as received:
        assert received.read().endswith(b"the reply")


def test_a_client_that_leaves_in_the_turn_of_its_reply_is_noticed() -> None:
    answered = Answered(1, lambda client, _: client.close())
    uvloop.run(answered.until(2))
    assert answered.heard == ["sent", "broke off"]


def test_answers_to_a_client_that_asked_ahead_and_left_are_no_trouble() -> None:
    answered = Answered(3, lambda client, _: client.close())
    uvloop.run(answered.until(1))
    assert answered.trouble == []
