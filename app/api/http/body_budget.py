"""A memory budget for the large bodies that a process reads, decodes and stores at a time.

A body holds a share of the budget from before it is read until its answer. A body that does not fit waits unread, so
TCP holds its client back. Shares grow while bodies are read, for two reasons: a compressed or chunked body does not
announce its size, and a slow body should not hold room that it does not use yet.

Growing shares could deadlock. One rule prevents it: shares are served in the order of their first claim, and the oldest
is never kept waiting, even if it exceeds the budget. So the oldest body is always being read (until its timeout),
decoded or stored. Then it releases its share, and the next one is the oldest. In the worst case the budget is exceeded
by the share of the oldest body.
"""

import asyncio

UNCOUNTED_BYTES = 1024 * 1024
"""Bodies up to this size do not use the budget, and never wait."""


class BodyBudget:
    """The budget of one process; used on its event loop only.

    Args:
        budget_bytes: The bytes that all shares except the oldest may hold together.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._held_bytes = 0
        self._shares: dict[Share, None] = {}  # in the order of their first claim

    @property
    def held_bytes(self) -> int:
        """Return the bytes that all shares hold now."""
        return self._held_bytes

    def share(self) -> "Share":
        """Create an empty share. The caller that claims with it must release it."""
        return Share(self)

    def _enter(self, share: "Share") -> None:
        self._shares.setdefault(share)
        self._serve()

    def _leave(self, share: "Share") -> None:
        if share in self._shares:
            del self._shares[share]
            self._held_bytes -= share.held_bytes
            self._serve()

    def _serve(self) -> None:
        """Grant the wanted bytes, oldest share first, up to the first share that does not fit."""
        for place, share in enumerate(self._shares):
            if share.wanted_bytes is None:
                continue
            more_bytes = share.wanted_bytes - share.held_bytes
            if place > 0 and self._held_bytes + more_bytes > self._budget_bytes:
                return
            self._held_bytes += more_bytes
            share.grant()


class Share:
    """The part of a budget that one body holds."""

    __slots__ = ("_budget", "_granted", "held_bytes", "wanted_bytes")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._granted: asyncio.Event | None = None
        self.held_bytes = 0
        self.wanted_bytes: int | None = None

    def covers(self, size_bytes: int) -> bool:
        """Return whether a body of this size needs no further claim."""
        return size_bytes <= UNCOUNTED_BYTES or size_bytes <= self.held_bytes

    async def claim(self, size_bytes: int) -> None:
        """Hold ``size_bytes`` in all. Waits while they do not fit, in the order of first claims."""
        if self.covers(size_bytes):
            return
        self._granted = asyncio.Event()
        self.wanted_bytes = size_bytes
        self._budget._enter(self)
        await self._granted.wait()

    def grant(self) -> None:
        """Hold the wanted bytes. The budget calls this."""
        assert self.wanted_bytes is not None, "only a claimed size is granted"  # noqa: S101
        assert self._granted is not None, "a claim waits for this"  # noqa: S101
        self.held_bytes, self.wanted_bytes = self.wanted_bytes, None
        self._granted.set()

    def release(self) -> None:
        """Release the held bytes, because the body is no longer in memory."""
        self._budget._leave(self)
