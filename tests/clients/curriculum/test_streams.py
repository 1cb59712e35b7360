"""Streams of items of a curriculum against the real service: drawn ahead, shared, free again, given back."""

import asyncio
from functools import partial

import pytest

from lachesis import AsyncCurriculum, AsyncEnvironment, Group, NoItem, Settings
from lachesis._prefetch.items import AsyncItemStream
from lachesis.errors import Unreachable
from tests.clients.conftest import settings_of
from tests.clients.curriculum.items import KEYS
from tests.clients.proxy import CuttingProxy, Direction
from tests.clients.silence import silent_service
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def drawn(stream: AsyncItemStream, count: int) -> list[str]:
    """So many keys of a stream."""
    return [(await anext(stream)).key for _ in range(count)]


def ask_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let streams that got no item ask again after minutes, unless they learn that there may be one."""
    for name in ("items._SHORTEST_PAUSE_S", "items._LONGEST_PAUSE_S", "queue._LONGEST_POLL_S"):
        monkeypatch.setattr(f"lachesis._prefetch.{name}", 600)


async def test_tasks_share_a_stream_and_what_is_not_observed_does_not_come_again(curriculum: AsyncCurriculum) -> None:
    tried: list[str] = []

    async def work(stream: AsyncItemStream) -> None:
        async for item in stream:
            tried.append(item.key)
            if len(tried) > 60:
                await stream.aclose()
            if item.key != "sum/5":
                await curriculum.observe(item, [1.0, 0.0])

    stream = curriculum.items(prefetch=3)
    await asyncio.gather(*(work(stream) for _ in range(4)))
    assert set(tried) == set(KEYS)
    assert tried.count("sum/5") == 1
    await curriculum.flush()
    info = await curriculum.info()
    assert (info.observations, info.items, info.items_seen) == (len(tried) - 1, 12, 11)


async def test_no_two_streams_have_an_item_and_who_gets_none_learns_why(
    curriculum: AsyncCurriculum, run: Settings
) -> None:
    async with AsyncCurriculum("sums", run) as other:
        streams = [curriculum.items(prefetch=0), other.items(prefetch=0, strategy="learnability", wait_s=30)]
        found = [await anext(stream) for _ in range(6) for stream in streams]
        assert sorted(item.key for item in found) == sorted(KEYS)
        assert [found[0].bin, found[0].probability, found[0].metadata] == [2, pytest.approx(1 / 12), None]
        with pytest.raises(NoItem, match=r"no item in 0\.2 s: 12 are in flight, the first of which is free in \d+ s"):
            await anext(curriculum.items(wait_s=0.2))


async def test_an_observation_of_ones_own_ends_the_wait_for_an_item(
    curriculum: AsyncCurriculum, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_rarely(monkeypatch)
    stream = curriculum.items(prefetch=0)
    keys = await drawn(stream, 12)
    waiting = asyncio.create_task(drawn(stream, 2))
    await curriculum.observe(keys[3], [0.5])
    await curriculum.observe(keys[5], [0.5])
    async with asyncio.timeout(60):
        assert sorted(await waiting) == sorted([keys[3], keys[5]])


async def test_a_group_of_ones_own_ends_the_wait_for_its_item(
    curriculum: AsyncCurriculum, run: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_rarely(monkeypatch)
    async with AsyncEnvironment("sums", run) as environment:
        stream = environment.curriculum().items(prefetch=0)
        keys = await drawn(stream, 12)
        drawn_so_far = (await curriculum.info()).samples
        waiting = asyncio.create_task(drawn(stream, 1))

        async def has_found_none() -> bool:
            return (await curriculum.info()).samples > drawn_so_far

        await wait_until(has_found_none)
        await environment.submit(Group([[1, 2]], [[1, 2]], [0.5], item=keys[3]))
        async with asyncio.timeout(60):
            assert await waiting == [keys[3]]


async def test_every_stream_learns_that_items_are_free(
    curriculum: AsyncCurriculum, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose request found none, and whose reply is still on its way."""
    ask_rarely(monkeypatch)
    first, second = curriculum.items(prefetch=0), curriculum.items(prefetch=0)
    keys = await drawn(first, 12)
    service = f"http://127.0.0.1:{proxy.upstream}"
    async with AsyncCurriculum("sums", service, run=curriculum.settings.run) as elsewhere:
        requests = (await elsewhere.info()).samples
        replies = proxy.passed["reply"]

        async def has_come(more: int) -> bool:
            return (await elsewhere.info()).samples == requests + more

        waiting = [asyncio.create_task(drawn(first, 1))]
        await wait_until(lambda: proxy.passed["reply"] > replies)  # it found none, and waits
        proxy.lets_replies_pass.clear()
        waiting.append(asyncio.create_task(drawn(second, 1)))
        await wait_until(partial(has_come, 2))
        for key in keys[:2]:
            await elsewhere.observe(key, [0.5])
        await elsewhere.flush()
        curriculum._note_freed()
        await wait_until(partial(has_come, 3))
        proxy.lets_replies_pass.set()
        async with asyncio.timeout(60):
            assert sorted([*(await waiting[0]), *(await waiting[1])]) == sorted(keys[:2])


async def test_items_that_were_never_observed_come_again_in_time(curriculum: AsyncCurriculum) -> None:
    await curriculum.change(in_flight_ttl_s=0.5)
    gone = await curriculum.sample(20)
    assert (len(gone.items), gone.in_flight) == (12, 12)
    assert gone.retry_after_s is not None
    assert (await anext(curriculum.items())).key in KEYS


async def test_what_waited_so_long_that_others_may_have_it_is_not_tried(curriculum: AsyncCurriculum) -> None:
    await curriculum.change(in_flight_ttl_s=1)
    stream = curriculum.items(prefetch=12, wait_s=5)  # as long as a busy service may take
    await anext(stream)
    await curriculum.change(in_flight_ttl_s=600)

    others = 0

    async def all_are_with_others() -> bool:
        nonlocal others
        others += len((await curriculum.sample(12)).items)
        return others == 12

    await wait_until(all_are_with_others)
    with pytest.raises(NoItem, match="12 are in flight"):
        await anext(stream)


async def test_a_closed_stream_ends_its_loops_and_one_that_was_left_goes_on(
    curriculum: AsyncCurriculum,
) -> None:
    seen: list[str] = []
    async with curriculum.items(prefetch=12) as stream:
        async for item in stream:
            seen.append(item.key)
            break
        seen += await drawn(stream, 11)
        assert sorted(seen) == sorted(KEYS)
        waiting = [asyncio.create_task(anext(stream, None)) for _ in range(2)]
        await asyncio.sleep(0)
    assert await asyncio.gather(*waiting) == [None, None]
    assert [item async for item in stream] == []


async def test_a_curriculum_without_items_is_waited_for_until_it_has_some(run: Settings) -> None:
    async with AsyncCurriculum("sums", run) as curriculum:
        await curriculum.set_up()
        async with curriculum.items(wait_s=5) as impatient:  # as long as a busy service may take to say why
            with pytest.raises(NoItem, match="the curriculum has no items"):
                await anext(impatient)
        waiting = asyncio.create_task(anext(curriculum.items()))
        await curriculum.register(["late"])
        assert (await waiting).key == "late"


async def test_what_is_ready_when_a_stream_is_closed_is_given_back(curriculum: AsyncCurriculum) -> None:
    stream = curriculum.items(prefetch=5)
    tried = (await drawn(stream, 1))[0]

    async def are_ready() -> bool:
        return (await curriculum.info()).in_flight == 6

    await wait_until(are_ready)
    await curriculum.observe("sum/100", [1.0])
    await stream.aclose()
    assert (await curriculum.info()).in_flight == 1
    sample = await curriculum.sample(12)
    assert tried not in {item.key for item in sample.items}
    assert await curriculum.release(sample, sample.items[:2]) == 2
    assert await curriculum.release(sample) == len(sample.items) - 2
    assert (await curriculum.info()).in_flight == 1


async def test_a_curriculum_gives_back_what_an_interrupted_end_of_a_stream_left(
    run: Settings, curriculum: AsyncCurriculum, proxy: CuttingProxy
) -> None:
    async with AsyncCurriculum("sums", run) as another:
        stream = another.items(prefetch=5)
        await anext(stream)
        async with silent_service(proxy):
            ending = asyncio.create_task(stream.aclose())
            await wait_until(lambda: "closed=True" in repr(stream))
            ending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ending
        another.items()  # it forgets the streams that have ended
    assert (await curriculum.info()).in_flight == 1


@pytest.mark.parametrize("direction", ["request", "reply"])
async def test_a_sample_whose_answer_was_lost_is_asked_for_again(
    curriculum: AsyncCurriculum, proxy: CuttingProxy, direction: Direction
) -> None:
    await curriculum.info()
    proxy.cut(direction, 100)
    assert len((await curriculum.sample(7)).items) == 7
    assert (proxy.cuts, (await curriculum.info()).in_flight) == (1, 7)


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_stream_gets_or_gives_back_what_a_lost_answer_had(
    curriculum: AsyncCurriculum, proxy: CuttingProxy, goes_on: bool
) -> None:
    async with AsyncCurriculum("sums", settings_of(proxy, retry_budget_s=0)) as impatient:
        await impatient.info()
        proxy.cut("reply", 100)
        stream = impatient.items(prefetch=4)
        with pytest.raises(Unreachable):
            await anext(stream)
        assert (await curriculum.info()).in_flight == 5
        if goes_on:
            assert len({*(await drawn(stream, 5))}) == 5
            await stream.aclose()
            assert (await curriculum.info()).in_flight == 5
    assert (await curriculum.info()).in_flight == (5 if goes_on else 0)
