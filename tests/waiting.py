"""Waiting for something to become true, instead of sleeping and hoping."""

import asyncio
import time
from collections.abc import Awaitable, Callable


async def wait_until(true: Callable[[], Awaitable[bool]], timeout_s: float = 15.0, pause_s: float = 0.05) -> None:
    """Ask until the answer is yes.

    Raises:
        AssertionError: It was still no after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while not await true():
        assert time.monotonic() < deadline, f"not true within {timeout_s} s"
        await asyncio.sleep(pause_s)
