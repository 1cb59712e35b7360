"""Waits for a run that may not have been made yet, as to join it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from lachesis._transport.http import Sender
from lachesis._transport.protocol import RunCalls
from lachesis._transport.retry import Seldom
from lachesis.errors import ReplayNotFound, RunNotFound
from lachesis.wire.environments import EnvironmentCreate, Joined

_ASKED_EVERY_S, _MISSED_EVERY_S = 0.5, 60.0

T = TypeVar("T")

log = logging.getLogger(__name__)


async def join(calls: RunCalls, sender: Sender, new: EnvironmentCreate, wait_s: float) -> Joined:
    """Join the run, waiting up to ``wait_s`` for it to be made.

    Raises:
        RunNotFound: It was not.
    """
    return await once_made(lambda: sender.send(calls.join(new)), wait_s)


async def once_made(ask: Callable[[], Awaitable[T]], wait_s: float) -> T:
    """Return what is answered once the run, or its replay buffer, is there; waits up to ``wait_s`` for that.

    Raises:
        RunNotFound, ReplayNotFound: It was not made.
    """
    until_s = time.monotonic() + wait_s
    missed = Seldom(_MISSED_EVERY_S)
    while True:
        try:
            return await ask()
        except (RunNotFound, ReplayNotFound) as error:
            if time.monotonic() + _ASKED_EVERY_S > until_s:
                raise
            if missed.due(time.monotonic()):
                log.warning("%s. Waiting for it, %g s at most", error, wait_s)
        await asyncio.sleep(_ASKED_EVERY_S)
