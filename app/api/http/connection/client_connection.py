"""The connection of a request: whether the request arrived, and whether the client read the reply."""

import asyncio
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

CLIENT_CONNECTION = "lachesis.connection"
SLOW_S = 30.0
"""A client that takes nothing of its reply for so long is dropped."""

_UNSENT_PAUSE_S = 0.005


class ClientConnection:
    """One request's view of its connection.

    Args:
        close: Ends the connection. Called when a watched reply breaks off.
        unsent_bytes: Returns how much was written and is still in this process.
        abort: Ends the connection, and drops what is still in this process.
    """

    __slots__ = ("_abort", "_broken", "_callbacks", "_close", "_last_orders", "_unsent_bytes", "request_arrived")

    def __init__(self, close: Callable[[], None], unsent_bytes: Callable[[], int], abort: Callable[[], None]) -> None:
        self._close = close
        self._abort = abort
        self._unsent_bytes = unsent_bytes
        self._callbacks: list[Callable[[], None]] = []
        self._last_orders: list[Callable[[], None]] = []
        self._broken = False
        self.request_arrived = False  # to its last byte

    async def flushed(self) -> None:
        """Wait until everything written has left this process, or the connection is broken.

        From then on the operating system delivers it, even if this process is killed. A client on this machine that
        left before has been noticed by then.
        """
        await asyncio.sleep(0)  # the gathered data is written
        await asyncio.sleep(0)  # the event loop has sent it, and seen who is gone
        while self._unsent_bytes() and not self._broken:  # noqa: ASYNC110 - a transport does not say when it is empty
            await asyncio.sleep(_UNSENT_PAUSE_S)

    def on_shutdown(self, callback: Callable[[], None]) -> None:
        """Call back when the server is about to end. A request that waits should answer then."""
        self._last_orders.append(callback)

    def shut_down(self) -> None:
        """Note that the server is about to end."""
        for callback in self._last_orders:
            callback()

    def on_reset(self, callback: Callable[[], None]) -> None:
        """Call back once, on the event loop, if the client has not read the whole reply.

        That is: the connection is lost before the reply is complete, or is reset before the client's next request. If
        it has happened already, the callback comes soon. No callback proves nothing: a proxy may hide it.
        """
        if self._broken:
            self._close()
            asyncio.get_running_loop().call_soon(callback)
        else:
            self._callbacks.append(callback)

    def give_up(self) -> None:
        """End the connection: the client does not take the reply. What is still in this process is dropped."""
        self._close()
        self._abort()

    @property
    def broken(self) -> bool:
        """Return whether it is known that the client will not read the reply."""
        return self._broken

    def break_off(self, loop: asyncio.AbstractEventLoop) -> None:
        """Record that the client may not have read the reply."""
        self._broken = True
        if self._callbacks:
            self._close()
        for callback in self._callbacks:
            loop.call_soon(callback)  # an error in one must not stop the others
        self._callbacks.clear()


def connection_of(scope: MutableMapping[str, Any]) -> ClientConnection | None:
    """Return the connection of a request; None with another server, such as a test transport."""
    connection: ClientConnection | None = scope.get(CLIENT_CONNECTION)
    return connection


def has_arrived(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request is known to have arrived completely."""
    connection = connection_of(scope)
    return connection is not None and connection.request_arrived


def end_of_waiting(scope: MutableMapping[str, Any]) -> "asyncio.Future[None]":
    """Return a future that is done when a request should stop waiting: its client left, or the server ends."""
    ended = asyncio.get_running_loop().create_future()
    connection = connection_of(scope)
    if connection is not None:
        connection.on_reset(partial(end, ended))
        connection.on_shutdown(partial(end, ended))
    return ended


def end(waiting: "asyncio.Future[None]") -> None:
    """End a wait, unless it has ended."""
    if not waiting.done():
        waiting.set_result(None)
