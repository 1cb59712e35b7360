"""Loops over batches that are closed, while a task waits in them, while the run is rewound, or without a service."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from lachesis import AsyncBatch, AsyncEnvironment, AsyncTrainer, Settings, Trainer
from tests.clients.another_server import another_server
from tests.clients.proxy import CuttingProxy
from tests.clients.run import group, interrupted_end, leased, submitted
from tests.clients.silence import silent_service
from tests.scenarios.native_calls import trainers_wait
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def someone_waits(run: Settings) -> None:
    """Wait until a request for a batch waits at the service."""
    async with httpx.AsyncClient(base_url=run.url, trust_env=False) as client:
        await trainers_wait(client, 1)


async def next_of(batches: AsyncGenerator[AsyncBatch, None]) -> AsyncBatch:
    return await anext(batches)


async def test_a_loop_that_is_closed_during_a_rewind_takes_nothing_more(run: Settings) -> None:
    """As asyncio closes it when it was left by ``break``."""
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(position) for position in range(1, 5)])
        batches = trainer.batches(prefetch=1)
        await (await anext(batches)).ack()
        await wait_until(lambda: "batches_held=1" in repr(trainer))
        closing = asyncio.create_task(batches.aclose())
        await trainer.rewind(0)
        await closing
        again = []
        for _ in range(2):
            batch = await trainer.take(wait_s=30)
            assert batch is not None
            again.append(batch.tokens.tolist())
        assert again == [[1, 2], [3, 4]]
        assert "batches_held=2" in repr(trainer)


async def test_a_task_that_waits_during_a_rewind_gets_the_rewound_batch(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        batches = trainer.batches(prefetch=0)
        await (await anext(batches)).ack()
        waiting = asyncio.create_task(next_of(batches))
        await someone_waits(run)
        await trainer.rewind(0)
        assert (await waiting).step == 1
        await batches.aclose()


async def test_a_loop_that_waits_ends_when_its_trainer_is_closed(run: Settings) -> None:
    trainer = AsyncTrainer(run)

    async def trained() -> list[int]:
        return [batch.step async for batch in trainer.batches()]

    training = asyncio.create_task(trained())
    await someone_waits(run)
    await trainer.aclose()
    assert await training == []


async def test_a_call_that_waits_when_its_trainer_is_closed_blames_no_service(
    run: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = AsyncTrainer(run)
    waiting = asyncio.create_task(trainer.take(wait_s=60))
    await someone_waits(run)
    await trainer.aclose()
    with pytest.raises(RuntimeError, match="this object was closed while the call waited"):
        await waiting
    assert "Trying again" not in caplog.text


async def test_a_closed_trainer_says_so_and_its_batches_can_be_given_back_again(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        batch = await trainer.take(wait_s=30)
    assert batch is not None
    await batch.nack()  # it is where that would bring it
    with pytest.raises(RuntimeError, match="this object is closed: create another one"):
        await trainer.run()


async def test_a_loop_of_a_thread_ends_when_another_thread_closes_the_trainer(run: Settings) -> None:
    trainer = Trainer(run)
    with ThreadPoolExecutor(1) as threads:
        training = threads.submit(lambda: [batch.step for batch in trainer.batches()])
        await someone_waits(run)
        await asyncio.to_thread(trainer.close)
        assert await asyncio.wrap_future(training) == []


async def test_a_trainer_is_shown_in_one_thread_while_others_prefetch(run: Settings) -> None:
    def loops(trainer: Trainer) -> None:
        for _ in range(30):
            assert len([batch.ack() for batch in islice(trainer.batches(prefetch=4), 4)]) == 4

    def shown(trainer: Trainer) -> None:
        for _ in range(100):
            try:
                repr(trainer)
            except RuntimeError as error:
                errors.append(error)

    errors = list[RuntimeError]()
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(number) for number in range(300)])
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Trainer(run) as trainer, ThreadPoolExecutor(1) as threads:
            training = threads.submit(loops, trainer)
            while not training.done():
                await asyncio.to_thread(shown, trainer)
            training.result()
    finally:
        sys.setswitchinterval(interval_s)
    assert not errors


async def test_an_interrupted_end_extends_no_lease_and_can_be_repeated(run: Settings, proxy: CuttingProxy) -> None:
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(position) for position in range(1, 7)])
    trainer = AsyncTrainer(run)
    loops = [trainer.batches(prefetch=0) for _ in range(2)]
    held = [await anext(loop) for loop in loops]
    taken = await trainer.take()
    assert taken is not None
    held.append(taken)
    async with silent_service(proxy):
        for interrupted in (trainer.take, trainer.aclose):  # the first may have taken a batch
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await interrupted()
        assert [batch.held for batch in held] == [False] * 3
        await asyncio.gather(*(batch._lease._extending for batch in held), return_exceptions=True)
        for loop in loops:
            await loop.aclose()
        await trainer.aclose()
        assert not trainer._sender.is_open


async def test_a_loop_whose_end_is_interrupted_while_another_ends_extends_no_lease(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(position) for position in range(1, 5)])
        loop = trainer.batches(prefetch=1)
        batch = await anext(loop)
        await wait_until(lambda: "batches_held=2" in repr(trainer))
        async with trainer._closing:  # as while the other loop ends
            await interrupted_end(loop)
        assert "batches_held=0" in repr(trainer)
        await asyncio.gather(batch._lease._extending, return_exceptions=True)
        assert batch._lease._extending.cancelled()


async def test_a_loop_whose_end_is_interrupted_leaves_giving_back_to_its_trainer(
    run: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncTrainer(run) as another, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(position) for position in range(1, 5)])
        trainer = AsyncTrainer(run)
        loop = trainer.batches(prefetch=1)
        await anext(loop)
        await wait_until(lambda: "batches_held=2" in repr(trainer))
        answered, send = asyncio.Event(), trainer._sender.send

        async def slow(*call: Any) -> Any:
            await answered.wait()
            return await send(*call)

        monkeypatch.setattr(trainer._sender, "send", slow)
        ending = asyncio.create_task(trainer.aclose())
        await wait_until(lambda: "batches_held=1" in repr(trainer))
        await interrupted_end(loop)
        answered.set()
        await ending
        assert await leased(another, 0)


async def test_the_end_waits_for_the_answer_about_one_batch_and_not_about_each(
    run: Settings, proxy: CuttingProxy
) -> None:
    """Without a service, each would wait for 5 s. Kubernetes kills a trainer after 30."""
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(position) for position in range(1, 7)])
    trainer = AsyncTrainer(run)
    loop = trainer.batches(prefetch=2)
    await anext(loop)
    await wait_until(lambda: "batches_held=3" in repr(trainer))
    asked: list[str] = []
    # The pause that this answer asks for is longer than a give-back waits.
    async with another_server("HTTP/1.1 503 Busy", "retry-after: 60", asked=asked) as url:
        proxy.upstream = urlsplit(url).port
        await proxy.drop_all()
        await trainer.aclose()
    assert len([path for path in asked if path.endswith("/nack")]) == 1
    await loop.aclose()
