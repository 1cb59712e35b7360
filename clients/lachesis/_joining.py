"""Joins a run, which may not have been made yet."""

import asyncio
import logging
import time

from lachesis._http import Sender
from lachesis._protocol import RunCalls
from lachesis._retry import Seldom
from lachesis.errors import RunNotFound
from lachesis.wire.environments import EnvironmentCreate
from lachesis.wire.status import EnvironmentStatus

_ASKED_EVERY_S, _MISSED_EVERY_S = 0.5, 60.0

log = logging.getLogger(__name__)


async def join(calls: RunCalls, sender: Sender, new: EnvironmentCreate, wait_s: float) -> EnvironmentStatus:
    """Join the run, waiting up to ``wait_s`` for it to be made.

    Raises:
        RunNotFound: It was not.
    """
    until_s = time.monotonic() + wait_s
    missed = Seldom(_MISSED_EVERY_S)
    while True:
        try:
            return await sender.send(calls.join(new))
        except RunNotFound as error:
            if time.monotonic() + _ASKED_EVERY_S > until_s:
                raise
            if missed.due(time.monotonic()):
                log.warning("%s. Waiting for it, %g s at most", error, wait_s)
        await asyncio.sleep(_ASKED_EVERY_S)
