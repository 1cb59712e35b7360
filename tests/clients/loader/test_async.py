"""The same loop on an event loop, and sources that have something to open."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from lachesis._compat import timeout
from lachesis.errors import FetchFailed
from lachesis.loader import AsyncSource, Loader, Pad, Source
from tests.clients.loader.fetching import fragments_served, nothing_left, sample, source_of

COLOURS = ["sync", "async"]


def nothing_runs() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("ordered", [True, False])
async def test_async_for_gives_the_same_samples(colour: str, ordered: bool) -> None:
    source = source_of(colour, 30, takes_s=lambda key: key % 5 / 1000)
    with nothing_left():
        loader = Loader(source, 4, seed=1, epochs=2, ordered=ordered, ragged=Pad())
        keys = [key async for batch in loader for key in batch.keys]
    expected = [key for epoch in range(2) for key in loader._order.samples(epoch).tolist()]
    assert (keys if ordered else sorted(keys)) == (expected if ordered else sorted(expected))
    assert nothing_runs()


@pytest.mark.parametrize("colour", COLOURS)
async def test_what_one_kind_of_loop_saved_the_other_continues(colour: str) -> None:
    whole = [batch.keys async for batch in Loader(source_of(colour, 12), 4, seed=1, ragged=Pad())]
    async with Loader(source_of(colour, 12), 4, seed=1, ragged=Pad()) as loader:
        assert (await anext(aiter(loader))).keys == whole[0]
    restored = Loader(source_of(colour, 12), 4, seed=1, ragged=Pad())
    restored.load_state_dict(loader.state_dict())
    assert [batch.keys for batch in restored] == whole[1:]


@pytest.mark.parametrize("colour", COLOURS)
async def test_leaving_the_block_ends_all_tasks_and_threads(colour: str) -> None:
    with nothing_left():
        async with Loader(source_of(colour, 1000), 4, ragged=Pad()) as loader:
            batches = aiter(loader)
            assert (await anext(batches)).keys == [0, 1, 2, 3]
            with pytest.raises(RuntimeError, match="is running"):
                aiter(loader)
            with pytest.raises(RuntimeError, match="await aclose"):
                loader.close()
        assert nothing_runs()
        assert [batch async for batch in batches] == []


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
async def test_a_loop_that_was_left_has_ended_when_the_loader_is_closed(error: type[Exception] | None) -> None:
    """After ``break`` a task of Python's closes the generator. The next loop waits for it, too."""
    events: list[str] = []

    async def fetch(key: int) -> Any:
        return sample(key)

    @asynccontextmanager
    async def opening() -> AsyncIterator[Callable[[int], Awaitable[Any]]]:
        events.append("opened")
        try:
            yield fetch
        finally:
            await asyncio.sleep(0)
            events.append("closed")

    with contextlib.suppress(ZeroDivisionError):
        async with Loader(AsyncSource(range(1000), opening), 4, ragged=Pad()) as loader:
            async for _ in loader:
                break
            async for batch in loader:
                assert batch.keys == [4, 5, 6, 7]
                if error is not None:
                    raise error
                break
    assert events == ["opened", "closed"] * 2
    assert nothing_runs()


async def test_a_trainer_that_is_cancelled_leaves_nothing_behind() -> None:
    """Loads that wait forever are cancelled with it. Then the source is closed."""
    events: list[str] = []

    async def fetch(key: int) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            events.append("cancelled")

    @asynccontextmanager
    async def opening() -> AsyncIterator[Callable[[int], Awaitable[Any]]]:
        yield fetch
        events.append("never here")

    @asynccontextmanager
    async def closing() -> AsyncIterator[Callable[[int], Awaitable[Any]]]:
        try:
            async with opening() as fetch:
                yield fetch
        finally:
            events.append("closed")

    async def train() -> None:
        async with Loader(AsyncSource(range(100), closing), 4, prefetch_batches=1) as loader:
            async for _ in loader:
                pass

    training = asyncio.create_task(train())
    for _ in range(10):
        await asyncio.sleep(0)
    training.cancel()
    with pytest.raises(asyncio.CancelledError):
        await training
    assert events == ["cancelled"] * 8 + ["closed"]
    assert nothing_runs()


async def test_cancelling_waits_for_calls_in_threads_without_stopping_the_event_loop() -> None:
    loop, begun, released = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def fetch(key: int) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert released.wait(20)
        return sample(key)

    async def train() -> None:
        async with Loader(Source(range(100), fetch), 2, ragged=Pad()) as loader:
            async for _ in loader:
                pass

    with nothing_left():
        training = asyncio.create_task(train())
        await begun.wait()
        training.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not training.done()
        released.set()
        with pytest.raises(asyncio.CancelledError):
            await training


@pytest.mark.parametrize("kind", [OSError, StopIteration, asyncio.CancelledError])
@pytest.mark.parametrize("colour", COLOURS)
async def test_a_fetch_that_fails_is_raised_with_its_key(colour: str, kind: type[BaseException]) -> None:
    """Exceptions that asyncio handles itself are raised, too: the loop does not wait forever."""

    def fetch(key: int) -> Any:
        if key >= 6:
            raise kind("no")
        return sample(key)

    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    came = []
    with nothing_left(), pytest.raises(FetchFailed, match="6 could not be loaded") as failed:
        async with timeout(20):
            came += [batch.keys async for batch in Loader(source_of(colour, 40, fetch), 3, ragged=Pad())]
    assert failed.value.key == 6
    assert nothing_runs()
    del failed
    await asyncio.sleep(0)
    assert complaints == []


async def test_tasks_keep_to_the_readers_too() -> None:
    active = peak = 0

    async def fetch(key: int) -> Any:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        await asyncio.sleep(0)
        active -= 1
        return sample(key)

    loader = Loader(AsyncSource.of(range(20), fetch), 4, readers=3, ragged=Pad())
    assert len([batch async for batch in loader]) == 5
    assert peak == 3


def fragments(url: str, ids: list[str], clients: list[httpx.AsyncClient]) -> AsyncSource[str]:
    """As replay does it: one client for all loads, closed after the last."""

    @asynccontextmanager
    async def opening() -> AsyncIterator[Callable[[str], Awaitable[bytes]]]:
        async with httpx.AsyncClient(base_url=url, verify=False, trust_env=False) as client:
            clients.append(client)

            async def fetch(key: str) -> bytes:
                return (await client.get(f"/fragments/{key}")).raise_for_status().content

            yield fetch

    return AsyncSource(ids, opening)


async def test_fragments_are_fetched_by_id_over_http() -> None:
    """By either kind of loop; the client lives on the event loop of the loads, and is closed after the last."""
    clients: list[httpx.AsyncClient] = []
    async with fragments_served() as (url, asked):
        ids = [str(number) for number in range(50)]
        loader = Loader(fragments(url, ids, clients), 8, seed=4)
        ours = [batch async for batch in loader]
        loader.set_epoch(0)
        theirs = await asyncio.to_thread(list, loader)
        assert [batch.keys for batch in ours] == [batch.keys for batch in theirs]
        assert sorted(asked) == sorted(ids * 2)
        for batch in [*ours, *theirs]:
            assert batch.data["obs"]["image"][:, 1, 2].tolist() == [int(key) for key in batch.keys]
        with pytest.raises(FetchFailed, match="'gone' could not be loaded: HTTPStatusError: Client error '404"):
            _ = [batch async for batch in Loader(fragments(url, ["gone"], clients), 1)]
    assert len(clients) == 3
    assert all(client.is_closed for client in clients)


def test_a_loop_in_a_thread_of_its_own_loads_ahead_while_the_step_runs() -> None:
    """Of an asynchronous source, in a loop that is not."""
    fetched: list[int] = []

    async def fetch(key: int) -> Any:
        fetched.append(key)
        return sample(key)

    with Loader(AsyncSource.of(range(100), fetch), 4, prefetch_batches=2, ragged=Pad()) as loader:
        next(iter_ := iter(loader))
        deadline = time.monotonic() + 20
        while len(fetched) < 12:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        del iter_
