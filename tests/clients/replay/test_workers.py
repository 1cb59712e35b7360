"""Messages for workers that fill a replay buffer: about settings that are kept, waits and losses."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, get_args

import numpy as np
import pytest

from lachesis import AsyncReplay, AsyncTrainer, Settings
from lachesis.errors import FragmentExists, InvalidField, ReplayNotFound, RunNotFound, Unreachable
from lachesis.loader.nested import Nested
from lachesis.replay.drop_log import DropLog, Outgoing
from lachesis.wire.fragments import FragmentReceipt
from lachesis.wire.replay import RateLimiter
from lachesis.wire.states import FragmentOutcome
from tests.clients.conftest import settings_of
from tests.clients.proxy import CuttingProxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LIMITER = RateLimiter(samples_per_insert=1, min_diff=0, max_diff=2)


@pytest.fixture
async def replay(run: Settings) -> AsyncIterator[AsyncReplay]:
    """A run's buffer, with a rate limiter."""
    async with AsyncReplay(run) as replay:
        await replay.set_up(limiter=LIMITER)
        yield replay


def steps(count: int) -> Nested:
    return {"obs": np.arange(count)}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("lachesis") and record.levelno >= logging.WARNING
    ]


async def test_setting_up_keeps_what_others_changed_and_says_so(
    replay: AsyncReplay, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await replay.set_up(max_chunks=10_000, limiter=LIMITER)).settings.limiter == LIMITER
    assert not warnings(caplog)
    await replay.change(max_chunks=7)
    kept = await replay.set_up(max_chunks=5, max_reuse=None)
    assert (kept.settings.max_chunks, kept.settings.limiter) == (7, LIMITER)
    said = "the replay buffer of run math exists with other settings, and keeps them: {'max_chunks': 7}"
    assert warnings(caplog) == [said]


async def test_the_first_refused_fragment_is_logged_at_once_and_all_at_the_end(
    replay: AsyncReplay, caplog: pytest.LogCaptureFixture
) -> None:
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(1), policy_version=8)
        why = "policy_version {} is later than the run's: set that first"
        assert warnings(caplog) == [f"worker w: 1 fragment refused: future_version; {why.format(8)}"]
        await worker.insert(steps(49), policy_version=9)
        await worker.insert(steps(1), policy_version=0)
        assert worker.outcomes == {"future_version": 50, "stored": 1}
        assert len(warnings(caplog)) == 1, "and not again for each"
    assert warnings(caplog)[1:] == [f"worker w: 50 fragments refused: future_version; {why.format(9)}"]


def test_every_way_to_lose_a_fragment_is_logged_once_and_none_of_keeping_one(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = get_args(FragmentOutcome)
    lost = [outcome for outcome in outcomes if outcome not in ("stored", "repeated")]
    losses = DropLog("w")
    for count in (1, 2):
        for outcome in outcomes:
            losses.note([Outgoing(0, b"", 3, 4)], [FragmentReceipt(number=0, status=outcome, fragment=None)])
        losses.flush()
        losses.flush()
        assert [len(re.findall(f": {outcome};", caplog.text)) for outcome in lost] == [count] * len(lost)
        assert len(warnings(caplog)) == count * len(lost)


def test_a_reason_that_this_version_does_not_know_is_logged_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    receipt = FragmentReceipt.model_validate({"number": 0, "status": "throttled", "fragment": None})
    DropLog("w").note([Outgoing(0, b"", 3, 4)], [receipt])
    assert warnings(caplog) == ["worker w: 1 fragment not kept: throttled"]


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"priority": float("nan")}, "priority"),
        ({"priority": -1}, "priority"),
        ({"episode": ""}, "episode"),
        ({"episode": "e" * 129}, "episode"),
        ({"episode": 7}, "episode"),
    ],
)
async def test_a_label_that_the_service_would_refuse_is_refused_at_once(
    replay: AsyncReplay, given: dict[str, Any], place: str
) -> None:
    async with replay.worker("w", steps=2) as worker:
        with pytest.raises(InvalidField, match=f"^{place}: .*, not "):
            await worker.insert(steps(1), 0, **given)
        await worker.insert(steps(2), 0, episode="e" * 128, priority=np.float32(2))
        assert worker.outcomes == {"stored": 1}


async def test_a_worker_that_cannot_start_takes_no_steps(replay: AsyncReplay, proxy: CuttingProxy) -> None:
    async with AsyncReplay(settings_of(proxy, retry_budget_s=0)) as impatient:
        worker = impatient.worker("w", steps=2)
        service, proxy.upstream = proxy.upstream, None
        await proxy.drop_all()
        for count in (1, 2):
            with pytest.raises(Unreachable):
                await worker.insert(steps(count), policy_version=0)
        proxy.upstream = service
        await worker.insert(steps(2), policy_version=0)
        await worker.flush()
        assert worker.outcomes == {"stored": 1}


async def test_an_array_without_a_name_is_refused_at_once(replay: AsyncReplay) -> None:
    async with replay.worker("w", steps=2) as worker:
        with pytest.raises(InvalidField, match=r"^steps: has no name: give \{'obs': array\}$"):
            await worker.insert(np.ones(2), 0)
        assert worker.outcomes == {}


async def test_a_fragment_names_as_many_episodes_as_the_service_accepts(replay: AsyncReplay) -> None:
    async with replay.worker("w", steps=100) as worker:
        for number in range(64):
            await worker.insert(steps(1), 0, episode=f"e{number}")
        with pytest.raises(InvalidField, match="episode: a fragment has steps of more than 64 episodes"):
            await worker.insert(steps(1), 0, episode="e64")
        await worker.insert(steps(1), 0, episode="e0")
        await worker.flush()
        assert worker.outcomes == {"stored": 1}


async def test_fragments_that_are_refused_for_good_are_dropped_and_all_others_arrive(replay: AsyncReplay) -> None:
    """Two workers have one name: the numbers of the first are used up."""
    await replay.change(limiter=None)
    async with replay.worker("w", steps=1) as first, replay.worker("w", steps=1) as second:
        await first.insert(steps(2), policy_version=0)
        with pytest.raises(FragmentExists, match="worker w sent fragment 0 before") as raised:
            await second.insert({"obs": np.arange(10, 14)}, policy_version=0)
        one, other = raised.value.__notes__
        assert one == "fragment 0 of worker w was dropped"
        assert other.startswith("fragment 1 of worker w was dropped: worker w sent fragment 1 before")
        assert second.outcomes == {"stored": 2}
        await second.insert(steps(1), policy_version=0)
        assert second.outcomes == {"stored": 3}


async def test_a_worker_that_comes_back_behind_a_gap_loses_nothing(replay: AsyncReplay) -> None:
    """The first fragment is refused. So the others wait for its number for a while."""
    await replay.change(reorder_window_s=600.0)
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(1), policy_version=5)
        await worker.insert(steps(2), policy_version=0)
        assert worker.outcomes == {"future_version": 1, "stored": 2}
    (known,) = (await replay.state()).workers
    assert (known.next_number, known.resume_number, known.waiting_fragments) == (0, 3, 2)
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(3), policy_version=0)
        assert worker.outcomes == {"stored": 3}


async def test_a_blocked_worker_logs_what_it_waits_for_and_how_long(
    proxy: CuttingProxy, replay: AsyncReplay, caplog: pytest.LogCaptureFixture
) -> None:
    """However short the time is for which requests are repeated."""
    await replay.worker("first", steps=1).insert(steps(2), policy_version=0)
    async with AsyncReplay(settings_of(proxy, retry_budget_s=0)) as impatient:
        working = [
            asyncio.create_task(impatient.worker(f"w{patience_s}", 1, patience_s=patience_s).insert(steps(1), 0))
            for patience_s in (None, 60)
        ]
        await wait_until(lambda: _said(caplog, 2))
        for said, name, at_most in zip(sorted(warnings(caplog)), ("w60", "wNone"), (", 60 s at most", ""), strict=True):
            start = f"worker {name} is held back for 5 s now: the rate limiter holds inserts back: inserting 1 would"
            assert said.startswith(start)
            assert said.endswith(f" may be inserted before more is sampled. It waits until trainers sample{at_most}")
        await replay.change(limiter=None)
        await asyncio.gather(*working)
        assert (await replay.state()).sampleable_chunks == 4
    assert len(warnings(caplog)) == 2


async def _said(caplog: pytest.LogCaptureFixture, count: int) -> bool:
    return len(warnings(caplog)) == count


async def test_a_worker_waits_for_a_run_and_a_buffer_that_are_made_later(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async def worked(wait_s: float) -> None:
        async with AsyncReplay(settings) as replay, replay.worker("w", steps=1, wait_for_run_s=wait_s) as worker:
            await worker.insert(steps(1), policy_version=0)

    with pytest.raises(RunNotFound, match="create_run"):
        await worked(0)
    working = asyncio.create_task(worked(60))
    await wait_until(lambda: _said(caplog, 1))
    assert re.search(r"waiting up to 60 s: there is no run math\. Create the run ", caplog.text)
    async with AsyncTrainer(settings) as trainer, AsyncReplay(settings) as replay:
        await trainer.create_run(batch_size=1)
        with pytest.raises(ReplayNotFound, match=r"Replay\.set_up"):
            await worked(0)
        await replay.set_up()
        await working
        async with aclosing(replay.samples(num_chunks=1, wait_s=10)) as samples:
            assert (await anext(samples)).records[0].worker == "w"
