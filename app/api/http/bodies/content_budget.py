"""A memory budget for contents of groups and fragments that a process reads, writes as replies, and sends at a time.

A reply holds its share until it has left the process or broken off. Contents without room are not read: the request
waits a moment, in order, and is refused then. A reply that is larger than the whole budget goes alone.
"""

import asyncio
from typing import Self

from lachesis.wire.errors import TooManyReads

CONTENTS_BYTES = 256 * 1024 * 1024
"""The budget of one process."""

_PATIENCE_S = 5.0


class ContentBudget:
    """The budget of one process; used on its event loop only.

    Args:
        budget_bytes: The bytes that all shares may hold together.
        patience_s: How long a request waits for room.

    Attributes:
        held_bytes: The bytes that all shares hold now.
    """

    def __init__(self, budget_bytes: int = CONTENTS_BYTES, patience_s: float = _PATIENCE_S) -> None:
        self._budget_bytes = budget_bytes
        self._patience_s = patience_s
        self._turn = asyncio.Lock()  # it lets those who wait pass in order
        self._freed = asyncio.Event()
        self.held_bytes = 0

    def share(self) -> "ContentShare":
        """Create an empty share. The caller that claims with it must release it."""
        return ContentShare(self)

    async def wait_for_room(self, size_bytes: int) -> None:
        """Hold so many bytes as soon as they fit.

        Raises:
            TooManyReads: They did not fit for a while.
        """
        try:
            async with asyncio.timeout(self._patience_s), self._turn:
                while not self._fits(size_bytes):
                    self._freed.clear()
                    await self._freed.wait()
                self.held_bytes += size_bytes
        except TimeoutError:
            raise self._refusal() from None

    def change(self, held_bytes: int, size_bytes: int) -> None:
        """Hold ``size_bytes`` instead of ``held_bytes``.

        Raises:
            TooManyReads: It is more, and does not fit. Nothing has changed.
        """
        more_bytes = size_bytes - held_bytes
        if more_bytes > 0 and self.held_bytes > held_bytes and not self._fits(more_bytes):
            raise self._refusal()
        self.held_bytes += more_bytes
        self._freed.set()

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self._budget_bytes

    def _refusal(self) -> TooManyReads:
        return TooManyReads(
            f"replies that clients have not read yet hold {self.held_bytes} bytes of this process, "
            f"of {self._budget_bytes} that they may"
        )


class ContentShare:
    """The part of a budget that one reply holds."""

    def __init__(self, budget: ContentBudget) -> None:
        self._budget = budget
        self._held_bytes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Release it after an error. Otherwise the reply releases it."""
        if kind is not None:
            await self.release()

    async def claim(self, size_bytes: int) -> None:
        """Reserve bytes, and wait until they fit. Do nothing if the share already holds some.

        Raises:
            TooManyReads: They did not fit for a while.
        """
        if not self._held_bytes:
            await self._budget.wait_for_room(size_bytes)
            self._held_bytes = size_bytes

    def settle(self, size_bytes: int) -> None:
        """Hold what the reply really takes.

        Raises:
            TooManyReads: It is more than was claimed, and does not fit.
        """
        self._budget.change(self._held_bytes, size_bytes)
        self._held_bytes = size_bytes

    async def release(self) -> None:
        """Hold nothing. A repetition changes nothing."""
        self.settle(0)
