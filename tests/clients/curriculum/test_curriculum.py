"""Curricula against the real service: observations in the background, settings, owners and ends."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import numpy as np
import pytest

from lachesis import AsyncCurriculum, AsyncEnvironment, AsyncTrainer, Curriculum, Settings, Trainer
from lachesis.errors import CurriculumNotFound, InvalidField, Unreachable
from tests.clients.conftest import settings_of
from tests.clients.curriculum.items import KEYS
from tests.clients.proxy import CuttingProxy, Direction
from tests.clients.test_sync import in_thread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_setting_up_keeps_what_others_changed_and_says_so(
    curriculum: AsyncCurriculum, caplog: pytest.LogCaptureFixture
) -> None:
    await curriculum.change(strategy="plr")
    assert (await curriculum.set_up(n_bins=5)).settings.strategy == "plr"
    assert "other settings" not in caplog.text
    assert (await curriculum.set_up(strategy="learnability", n_bins=5)).settings.strategy == "plr"
    assert "curriculum sums exists with other settings, and keeps them: {'strategy': 'plr'}" in caplog.text


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
    with pytest.raises(InvalidField, match=r"rewards: List should have at least 1 item after validation, not 0$"):
        await curriculum.observe("sum/1", [])
    with pytest.raises(InvalidField, match=r"items\[0\]\.key: Field required$"):
        await curriculum.register([{"id": "sum/1"}])
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
