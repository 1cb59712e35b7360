"""Curricula against the real service: items drawn ahead, observations in the background."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import numpy as np
import pytest

from lachesis import AsyncCurriculum, AsyncEnvironment, AsyncTrainer, Curriculum, Group, NoItem, Settings, Trainer
from lachesis._prefetch.items import AsyncItemStream
from lachesis.errors import CurriculumNotFound, InvalidField, Unreachable
from tests.clients.conftest import settings_of
from tests.clients.proxy import CuttingProxy, Direction
from tests.clients.silence import silent_service
from tests.clients.test_sync import in_thread
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

KEYS = [f"sum/{number}" for number in range(12)]


@pytest.fixture
async def curriculum(run: Settings) -> AsyncIterator[AsyncCurriculum]:
    """One of twelve items."""
    async with AsyncCurriculum("sums", run) as curriculum:
        await curriculum.set_up()
        await curriculum.register(KEYS)
        yield curriculum


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


async def test_setting_up_keeps_what_others_changed_and_says_so(
    curriculum: AsyncCurriculum, caplog: pytest.LogCaptureFixture
) -> None:
    await curriculum.change(strategy="plr")
    assert (await curriculum.set_up(n_bins=5)).settings.strategy == "plr"
    assert "other settings" not in caplog.text
    assert (await curriculum.set_up(strategy="learnability", n_bins=5)).settings.strategy == "plr"
    assert "curriculum sums exists with other settings, and keeps them: {'strategy': 'plr'}" in caplog.text


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


@pytest.mark.parametrize("direction", ["request", "reply"])
async def test_observations_whose_answer_was_lost_are_counted_once(
    curriculum: AsyncCurriculum, proxy: CuttingProxy, direction: Direction
) -> None:
    await curriculum.info()
    proxy.cut(direction, 100)
    for number, key in enumerate(KEYS):
        await curriculum.observe(key, [float(number)])
    await curriculum.flush()
    assert proxy.cuts == 1
    known = [item async for item in curriculum.list_items()]
    assert {item.key: item.mean_reward for item in known} == {key: number for number, key in enumerate(KEYS)}
    assert {item.count for item in known} == {1}


async def test_a_flush_waits_for_earlier_observations_and_not_for_later_ones(curriculum: AsyncCurriculum) -> None:
    async def keep_observing() -> None:
        while True:
            await curriculum.observe("sum/2", [1.0])
            await asyncio.sleep(0)

    await curriculum.observe("sum/1", [1.0])
    observing = asyncio.create_task(keep_observing())
    async with asyncio.timeout(60):
        await curriculum.flush()
    assert (await curriculum.item("sum/1")).count == 1
    observing.cancel()


async def test_observations_wait_while_the_service_is_away(curriculum: AsyncCurriculum, proxy: CuttingProxy) -> None:
    upstream, proxy.upstream = proxy.upstream, None
    await proxy.drop_all()
    for _ in range(1500):
        await curriculum.observe("sum/1", np.array([1, 0], np.float32))
    flushing = asyncio.create_task(curriculum.flush())
    done, _ = await asyncio.wait([flushing], timeout=0.5)
    assert not done
    proxy.upstream = upstream
    await flushing
    assert (await curriculum.item("sum/1")).count == 1500


async def test_observations_that_cannot_be_sent_by_the_end_are_said_to_be_missing(
    curriculum: AsyncCurriculum, proxy: CuttingProxy
) -> None:
    other = AsyncCurriculum("sums", settings_of(proxy, retry_budget_s=0.3))
    proxy.upstream = None
    await proxy.drop_all()
    for _ in range(3):
        await other.observe("sum/1", [1.0])
    with pytest.raises(Unreachable) as raised:
        await other.aclose()
    assert raised.value.__notes__ == ["3 observations of curriculum sums did not arrive"]


async def test_a_task_that_waits_for_observations_learns_that_their_curriculum_was_closed(
    curriculum: AsyncCurriculum, proxy: CuttingProxy
) -> None:
    other = AsyncCurriculum("sums", settings_of(proxy, retry_budget_s=0.3))
    proxy.upstream = None
    await proxy.drop_all()
    await other.observe("sum/1", [1.0])
    flushing = asyncio.create_task(other.flush())
    await asyncio.sleep(0)  # it begins to wait
    with pytest.raises(Unreachable):
        await other.aclose()
    with pytest.raises(Unreachable, match="curriculum sums was closed"):
        await flushing


@pytest.mark.parametrize("owner", [partial(AsyncEnvironment, "sums"), AsyncTrainer])
async def test_observations_after_the_end_of_a_block_are_refused(
    run: Settings, owner: Callable[[Settings], AsyncEnvironment | AsyncTrainer]
) -> None:
    async with owner(run) as owning:
        used = owning.curriculum("sums")
        await used.set_up()
        async with used:
            await used.observe("sum/1", [1.0])
        await used.observe("sum/1", [1.0])  # the connections are those of the outer block
    async with AsyncCurriculum("sums", run) as own:
        assert (await own.info()).observations == 2
    for curriculum in (used, owning.curriculum("other"), own):
        for late in (partial(curriculum.observe, "sum/1", [1.0]), curriculum.flush):
            with pytest.raises(Unreachable, match=f"curriculum {curriculum.name} is closed: "):
                await late()


async def test_a_curriculum_that_sends_its_last_observations_takes_no_more(
    curriculum: AsyncCurriculum, run: Settings, proxy: CuttingProxy
) -> None:
    async with AsyncTrainer(run) as trainer:
        await trainer.curriculum("sums").flush()
        upstream, proxy.upstream = proxy.upstream, None
        await proxy.drop_all()
        await trainer.curriculum("sums").observe("sum/1", [1.0])
        closing = asyncio.create_task(trainer.aclose())
        await asyncio.sleep(0)  # it begins to close
        with pytest.raises(Unreachable, match="curriculum sums is closed"):
            await trainer.curriculum("sums").observe("sum/1", [1.0])
        proxy.upstream = upstream
        await closing
    assert (await curriculum.item("sum/1")).count == 1


async def test_a_curriculum_that_is_named_while_its_trainer_ends_takes_nothing(
    curriculum: AsyncCurriculum, run: Settings, proxy: CuttingProxy
) -> None:
    async with AsyncTrainer(run) as trainer:
        upstream, proxy.upstream = proxy.upstream, None
        await proxy.drop_all()
        await trainer.curriculum("sums").observe("sum/1", [1.0])
        closing = asyncio.create_task(trainer.aclose())
        await asyncio.sleep(0)  # it begins to close
        late = trainer.curriculum("late")
        proxy.upstream = upstream
        with pytest.raises(Unreachable, match="curriculum late is closed"):
            await late.observe("sum/1", [1.0])
        await closing
    assert (await curriculum.item("sum/1")).count == 1


def test_threads_that_name_a_curriculum_at_once_share_it_and_its_streams() -> None:
    """Else some observations would not be sent at the end, and some items not be given back."""
    before_s, threads = sys.getswitchinterval(), 16
    sys.setswitchinterval(1e-6)
    try:
        with Trainer(Settings("http://127.0.0.1:9", run="math")) as trainer, ThreadPoolExecutor(threads) as pool:
            for number in range(100):
                together = Barrier(threads)

                def named(name: str, together: Barrier = together) -> Curriculum:
                    together.wait()
                    curriculum = trainer.curriculum(name)
                    curriculum.items()
                    return curriculum

                found = list(pool.map(named, [f"c{number}"] * threads))
                assert len({id(one._async) for one in found}) == 1
                assert len(found[0]._async._queues) == threads
    finally:
        sys.setswitchinterval(before_s)


async def test_a_curriculum_that_is_closed_twice_at_once_sends_its_observations(
    curriculum: AsyncCurriculum, run: Settings
) -> None:
    other = AsyncCurriculum("sums", run)
    await other.observe("sum/1", [1.0])
    await asyncio.gather(other.aclose(), other.aclose())
    assert (await curriculum.item("sum/1")).count == 1


async def test_observations_that_are_refused_are_said_so_once_and_others_arrive(run: Settings) -> None:
    async with AsyncCurriculum("sums", run) as curriculum:
        await curriculum.observe("sum/1", [1.0])
        with pytest.raises(CurriculumNotFound, match="sums") as raised:
            await curriculum.flush()
        assert raised.value.__notes__ == ["1 observations of curriculum sums did not arrive"]
        await curriculum.set_up()
        await curriculum.observe("sum/1", [1.0])
        await curriculum.flush()
        assert (await curriculum.info()).observations == 1


async def test_wrong_values_are_found_before_anything_is_sent(curriculum: AsyncCurriculum, proxy: CuttingProxy) -> None:
    before = dict(proxy.passed)
    with pytest.raises(InvalidField, match=r"rewards\[1\]: Input should be a finite number, not nan"):
        await curriculum.observe("sum/1", [1.0, float("nan")])
    with pytest.raises(InvalidField, match="rewards: "):
        await curriculum.observe("sum/1", [])
    for key in (17, None, "", "x" * 513):
        for of_item in (curriculum.item, curriculum.change_item, curriculum.delete_item):
            with pytest.raises(InvalidField, match=r"key: (Input|String) should "):
                await of_item(key)  # type: ignore[arg-type]
        with pytest.raises(InvalidField, match=r"item: (Input|String) should "):
            await curriculum.observe(key, [1.0])  # type: ignore[arg-type]
    with pytest.raises(InvalidField, match="temprature: there is no such field; did you mean temperature"):
        await curriculum.change(temprature=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidField, match="strategy: "):
        curriculum.items(strategy="hardest")  # type: ignore[arg-type]
    with pytest.raises(InvalidField, match="prefetch: should be 0 or more"):
        curriculum.items(prefetch=-1)
    with pytest.raises(InvalidField, match="wait_s: should be above 0"):
        curriculum.items(wait_s=0)
    with pytest.raises(InvalidField, match="n: "):
        await curriculum.sample(0)
    with pytest.raises(InvalidField, match="name: should be a curriculum's name"):
        AsyncCurriculum("http://lachesis:8000")
    assert proxy.passed == before


async def test_an_environment_and_a_trainer_have_their_curricula_and_leaving_sends_what_was_observed(
    run: Settings,
) -> None:
    async with AsyncTrainer(run) as trainer:
        await trainer.curriculum("sums").set_up(strategy="easy_first", total_steps=10)
        async with AsyncEnvironment("sums", run) as environment:
            await environment.curriculum().register(KEYS)
            assert environment.curriculum() is environment.curriculum("sums")
            step = iter(range(100))
            async for item in environment.curriculum().items(prefetch=2, step=lambda: next(step)):
                await environment.curriculum().observe(item, [0.5])
                if next(step) > 8:
                    break
        info = await trainer.curriculum("sums").info()
        assert (info.observations, info.items_seen > 2) == (info.items_seen, True)
        assert {one.name for one in (await trainer.status()).environments} == {"sums"}


@pytest.mark.parametrize("error", [None, KeyError("mine")])
@pytest.mark.parametrize("owner", [partial(AsyncEnvironment, "sums"), AsyncTrainer])
async def test_leaving_says_which_observations_did_not_arrive_beside_what_else_went_wrong(
    run: Settings, owner: Callable[[Settings], AsyncEnvironment | AsyncTrainer], error: Exception | None
) -> None:
    async def leave() -> None:
        async with owner(run) as owning:
            await owning.curriculum("other").observe("a", [1.0])
            if error is not None:
                raise error

    with pytest.raises(type(error) if error else CurriculumNotFound) as raised:
        await leave()
    assert raised.value.__notes__[0].endswith("1 observations of curriculum other did not arrive")


async def test_a_synchronous_trainer_passes_an_interruption_on_although_observations_did_not_arrive(
    run: Settings,
) -> None:
    def interrupted() -> None:
        with Trainer(run) as trainer:
            trainer.curriculum("other").observe("a", [1.0])
            raise KeyboardInterrupt

    def story() -> None:
        with pytest.raises(KeyboardInterrupt) as raised:
            interrupted()
        assert raised.value.__notes__[0].endswith("1 observations of curriculum other did not arrive")

    await in_thread(story)


def test_a_curriculum_that_could_not_be_made_is_collected_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    for name, url in (("sums", "lachesis:8000"), ("no name", "http://lachesis:8000")):
        with contextlib.suppress(ValueError, InvalidField):
            AsyncCurriculum(name, url)
        gc.collect()
    assert errors == []
