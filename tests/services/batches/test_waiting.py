"""Those who wait for a batch leave nothing behind, and never wait for nobody."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import pytest

from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest
from app.services.batches.waiting import LongPollQueue
from tests.services.conftest import RUN, Process, config, encoded
from tests.waiting import wait_until


class Watched(BatchRequest):
    """A holder whose end can be seen."""


async def test_those_who_gave_up_are_forgotten_though_others_wait(process: Callable[..., Process]) -> None:
    """Else a client that asks and hangs up, again and again, fills the memory behind one that is patient."""
    services, _ = process()
    await services.runs.administration.create(RUN, config(4), Policy())
    stop = asyncio.Event()
    patient = asyncio.create_task(services.batches.long_poll.take(RUN, BatchRequest(), 60, stop))
    watched = [Watched() for _ in range(50)]
    ends = [weakref.ref(batch_request) for batch_request in watched]
    await wait_until(lambda: services.batches.long_poll.waiting == 1)
    await asyncio.gather(
        *(services.batches.long_poll.take(RUN, batch_request, 0.05, asyncio.Event()) for batch_request in watched)
    )
    watched.clear()
    gc.collect()
    assert not patient.done()
    assert [end() for end in ends] == [None] * 50
    stop.set()
    assert (await patient).not_ready is not None


async def test_who_asks_for_others_may_fail_and_they_hear_of_it_and_the_next_are_served_anew(
    process: Callable[..., Process],
) -> None:
    services, _ = process()
    await services.runs.administration.create(RUN, config(4), Policy())

    async def changes(_: str) -> AsyncGenerator[None, None]:
        yield None
        raise ZeroDivisionError

    room = LongPollQueue(services.batches.dispatch, changes)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(15):
                await room.take(RUN, BatchRequest(), 60, asyncio.Event())


async def test_what_was_true_for_those_who_have_left_is_not_told_to_the_next(process: Callable[..., Process]) -> None:
    services, _ = process()
    await services.runs.administration.create(RUN, config(4), Policy())

    async def once(_: str) -> AsyncGenerator[None, None]:
        yield None
        await asyncio.sleep(60)

    room = LongPollQueue(services.batches.dispatch, once)
    assert (await room.take(RUN, BatchRequest(), 0.1, asyncio.Event())).batch is None
    await services.groups.native.submit(RUN, [replace(encoded(4, 1), group_id="one")])
    assert (await room.take(RUN, BatchRequest(), 0, asyncio.Event())).batch is not None
