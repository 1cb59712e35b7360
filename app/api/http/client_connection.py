"""What a request may know of the connection it came on, and what the protocol tells of it."""

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any, cast

SCOPE_KEY = "lachesis.connection"
_UNSENT_PAUSE_S = 0.005


class Connection:
    """What a request may ask of the connection it came on."""

    __slots__ = ("_broken", "_callbacks", "_close", "_last_orders", "_unsent_bytes", "request_arrived")

    # A watched reply that broke off also ends the connection: ``close`` does that.
    def __init__(self, close: Callable[[], None], unsent_bytes: Callable[[], int]) -> None:
        self._close = close
        self._unsent_bytes = unsent_bytes
        self._callbacks: list[Callable[[], None]] = []
        self._last_orders: list[Callable[[], None]] = []
        self._broken = False
        self.request_arrived = False  # to its last byte

    async def flushed(self) -> None:
        """Wait until all that was written has left this process, or the connection is broken.

        The operating system delivers it from then on, also if this process is killed. And a client that had gone
        before has been noticed by then, where its end of the connection is on this machine.
        """
        await asyncio.sleep(0)  # what is held back for this turn is written
        await asyncio.sleep(0)  # the event loop has sent it, and looked who is gone
        while self._unsent_bytes() and not self._broken:  # noqa: ASYNC110 - a transport does not say when it is empty
            await asyncio.sleep(_UNSENT_PAUSE_S)

    def on_shutdown(self, callback: Callable[[], None]) -> None:
        """Call back when the server is about to end: a request that waits for something should answer now."""
        self._last_orders.append(callback)

    def shut_down(self) -> None:
        """Note that the server is about to end."""
        for callback in self._last_orders:
            callback()

    def on_reset(self, callback: Callable[[], None]) -> None:
        """Call back, once, on the event loop, if the client turns out not to have read this reply to its end.

        That is: the connection is lost before the reply is complete, or is reset before the client's next
        request begins. Called soon if that has happened already. Silence proves nothing: a proxy may hide it.
        """
        if self._broken:
            self._close()
            asyncio.get_running_loop().call_soon(callback)
        else:
            self._callbacks.append(callback)

    @property
    def broken(self) -> bool:
        """Whether that is known already, so that nothing more is sent."""
        return self._broken

    def break_off(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that the client has not read, or may not have, what this request's reply was."""
        self._broken = True
        if self._callbacks:
            self._close()
        for callback in self._callbacks:
            loop.call_soon(callback)  # not called here: an error in one must not end the others
        self._callbacks.clear()


def connection_of(scope: MutableMapping[str, Any]) -> Connection | None:
    """The connection a request came on; None where another server (a test transport) carries it."""
    return cast("Connection | None", scope.get(SCOPE_KEY))


def has_arrived(scope: MutableMapping[str, Any]) -> bool:
    """Whether a request is known to have arrived to its last byte, so that nobody waits for more of its body."""
    connection = connection_of(scope)
    return connection is not None and connection.request_arrived


def end_of_waiting(scope: MutableMapping[str, Any]) -> asyncio.Event:
    """An event that is set once a request should wait no longer: its client is gone, or the server is about to end."""
    ended = asyncio.Event()
    connection = connection_of(scope)
    if connection is not None:
        connection.on_reset(ended.set)
        connection.on_shutdown(ended.set)
    return ended
