"""Permits of a synchronous environment whose caller is interrupted."""

import asyncio
import threading

import pytest

from lachesis._transport.bridge import Portal
from lachesis._transport.http import Note
from lachesis.environments.permits import AsyncPermit, Permits
from lachesis.sync.environment import Permit
from lachesis.wire.environments import Credits
from tests.interrupts import interruption

GRANTED = Credits(
    granted_groups=1,
    credits_groups=0,
    credits_sequences=0,
    horizon_batches=1,
    wanted_sequences=1,
    outstanding_sequences=0,
    policy_version=0,
    reason="",
)


def test_a_permit_that_comes_as_its_caller_is_interrupted_is_given_back() -> None:
    """Otherwise the environment would count a group as running until it is closed."""
    told = 0

    async def ask(_: Note) -> Credits:
        threading.Thread(target=interrupt).start()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # too late: the service has answered
            return GRANTED
        raise AssertionError

    async def notify() -> None:
        nonlocal told
        told += 1

    portal = Portal()
    permits = Permits("gsm8k", ask, notify)
    with interruption() as interrupt, pytest.raises(KeyboardInterrupt), Permit(AsyncPermit(permits, None), portal):
        raise AssertionError
    assert (permits.held, told) == (0, 1)
    portal.close()
