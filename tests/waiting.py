"""Wait for conditions in place of fixed sleeps."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable


async def wait_until(
    true: Callable[[], bool | Awaitable[bool]], timeout_s: float = 120.0, pause_s: float = 0.02
) -> None:
    """Ask until the answer is yes.

    Raises:
        AssertionError: It was still no after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while not (await answer if inspect.isawaitable(answer := true()) else answer):
        assert time.monotonic() < deadline, f"not true within {timeout_s} s"
        await asyncio.sleep(pause_s)
