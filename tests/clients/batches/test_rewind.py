"""A trainer dies and goes back to its saved state: every batch since comes again, in order, and none is dropped."""

import asyncio
import json
import os
import re
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Settings
from lachesis.errors import LeaseLost, RewindImpossible, RunRewound
from tests.clients.docs.test_snippets import snippets
from tests.clients.proxy import CuttingProxy
from tests.clients.run import counts, group, submitted
from tests.properties import LONG
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

BRIEF = [(0, None), (1, 0), (2, 1), (3, 2), (2, 3)]
"""Batches to prefetch, and the maximum staleness: each value once in `make test`, each pair in `make test-long`."""
PAIRS = [
    pytest.param(prefetch, staleness, marks=[] if (prefetch, staleness) in BRIEF else LONG)
    for prefetch in range(4)
    for staleness in (None, 0, 1, 2, 3)
]

AROUND = """
import json, os, pathlib, sys
import lachesis

class Trainer(lachesis.Trainer):
    def rewind(self, step):
        rewound = super().rewind(step)
        print(json.dumps(rewound.steps), file=log, flush=True)
        return rewound

pad_id, saved, log = 0, pathlib.Path(sys.argv[1]), open(sys.argv[2], "a")
trains, trained = int(sys.argv[3]), 0

def load():
    return json.loads(saved.read_text()) if saved.exists() else 0

def save(step):
    saved.write_text(json.dumps(step))

def train(tokens, *_):
    global trained
    trained += 1
    batch = sys._getframe(1).f_globals["batch"]
    version = sys._getframe(1).f_globals["version"]
    groups = [one.id for one in batch.groups]
    print(json.dumps([batch.step, version, groups, batch.info.delivery_count]), file=log, flush=True)
    if trained == trains:
        os._exit(9)  # as by kill -9: nothing is given back
"""


def as_on_the_page(prefetch: int, max_staleness: int | None, every: int) -> str:
    """The loop of docs/how-to/resume-after-a-crash.md, with other numbers."""
    (page,) = snippets("docs/how-to/resume-after-a-crash.md")
    for written, meant in (
        ("prefetch=2", f"prefetch={prefetch}"),
        ("max_staleness=4", f"max_staleness={max_staleness}"),
        ("batch_size=128", "batch_size=1"),
        ("% 10 ", f"% {every} "),
        ("from lachesis import Trainer\n", ""),  # `AROUND` has one that notes what a rewind returns
    ):
        assert page.count(written) == 1
        page = page.replace(written, meant)
    return f"{AROUND}\n{page}"


class Story:
    """A trainer in a process of its own that dies, and an environment that goes on."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder

    async def train(self, name: str, code: str, batches: int) -> list[list[Any]]:
        """Train until it dies over so many batches; the step, policy version, groups and delivery of each."""
        log = self._folder / name
        environment = {**os.environ, "LACHESIS_URL": self._settings.url, "LACHESIS_RUN": self._settings.run}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, self._folder / "saved", log, str(batches)), env=environment
        )
        over = asyncio.Event()
        sending = asyncio.create_task(self._send(over))
        try:
            assert await process.wait() == 9
        finally:
            over.set()
            await sending
        return [json.loads(line) for line in log.read_text().splitlines()]

    async def _send(self, over: asyncio.Event) -> None:
        """Send groups of the version in force, one whenever none waits."""
        async with (
            AsyncTrainer(self._settings) as watching,
            AsyncEnvironment("math", self._settings, wait_for_run_s=60) as environment,
        ):
            while not over.is_set():
                if (await watching.status()).groups.queued == 0:
                    await environment.submit(group(1, policy_version=(await watching.run()).policy_version))
                    await environment.flush()
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(("prefetch", "max_staleness"), PAIRS)
async def test_every_batch_since_the_checkpoint_comes_again_in_order(
    settings: Settings, tmp_path: Path, prefetch: int, max_staleness: int | None
) -> None:
    story = Story(settings, tmp_path)
    code = as_on_the_page(prefetch, max_staleness, every=3)
    _, *before = await story.train("first", code, 6)
    saved_step = json.loads((tmp_path / "saved").read_text())
    assert saved_step == before[2][0]
    trained = [(step, groups) for step, _, groups, _ in before[3:]]

    steps, *after = await story.train("second", code, len(trained) + prefetch + 3)
    assert steps[: len(trained)] == [step for step, _ in trained], "and then those that were leased"
    assert steps == sorted(steps)
    again = [(step, groups) for step, _, groups, _ in after]
    assert again[: len(trained)] == trained
    assert [step for step, _ in again[: len(steps)]] == steps
    assert min(step for step, _ in again[len(steps) :]) > steps[-1], "then come new ones"
    assert {delivery for *_, delivery in after[: len(trained)]} == {2}, "none was given back and taken again"
    leased = {delivery for *_, delivery in after[len(trained) : len(steps)]}
    assert leased <= {1, 2}, "as trained ones; one that was on its way when the trainer died had reached no trainer"
    assert [version for _, version, _, _ in after] == [3 + n for n in range(len(after))], "from the checkpoint's on"


async def test_a_trainer_that_dies_before_its_first_checkpoint_trains_on_the_same_batches_again(
    settings: Settings, tmp_path: Path
) -> None:
    story = Story(settings, tmp_path)
    code = as_on_the_page(prefetch=1, max_staleness=None, every=10)
    steps, *before = await story.train("first", code, 3)
    assert steps == []
    assert [(step, version) for step, version, _, _ in before] == [(1, 0), (2, 1), (3, 2)]
    steps, *after = await story.train("second", code, 3)
    assert steps[:3] == [1, 2, 3]
    assert [one[:3] for one in after] == [one[:3] for one in before]


async def test_a_trainer_that_survived_cannot_change_what_comes_again(run: Settings) -> None:
    """Whatever it does: it acknowledges, gives back, takes more with one loop or the other, or tells its version."""
    async with (
        AsyncTrainer(run) as survivor,
        AsyncTrainer(run) as trainer,
        AsyncEnvironment("math", run) as environment,
    ):
        await submitted(environment, [group(position) for position in range(1, 17)])
        async with aclosing(survivor.batches(prefetch=2, wait_s=5)) as batches:
            for _ in range(2):
                await (await anext(batches)).ack()
            leased = await anext(batches)
            await wait_until(lambda: _has(trainer, leased=6))
            rewound = await trainer.rewind(0)
            assert rewound.steps == [1, 2, 3, 4, 5]
            for end in (leased.ack, leased.nack):
                with pytest.raises(LeaseLost):
                    await end()
            for prefetched in [await anext(batches) for _ in range(2)]:
                with pytest.raises(LeaseLost):
                    await prefetched.nack()
            with pytest.raises(RunRewound):
                await survivor.set_policy_version(3)
            with pytest.raises(RunRewound):
                await survivor.checkpoint(2)
            with pytest.raises(RunRewound, match="it has 1 rewinds, and had 0 when this trainer began"):
                await anext(batches)
        assert (await trainer.run()).policy_version == 0
        assert [await _trained(trainer) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        async with aclosing(survivor.batches(wait_s=5)) as batches:
            assert (await anext(batches)).step == 7, "another loop starts again"


async def test_a_trainer_that_left_its_loop_before_it_saw_a_rewind_learns_it_later(run: Settings) -> None:
    """The request that was refused was one ahead, and the loop never came to it."""
    async with (
        AsyncTrainer(run) as survivor,
        AsyncTrainer(run) as trainer,
        AsyncEnvironment("math", run) as environment,
    ):
        await submitted(environment, [group(position) for position in range(1, 3)])
        async with aclosing(survivor.batches(prefetch=1, wait_s=5)) as batches:
            await (await anext(batches)).ack()
            await trainer.rewind(0)
        async with aclosing(survivor.batches(wait_s=5)) as batches:
            with pytest.raises(RunRewound):
                await anext(batches)
        assert await _trained(trainer) == 1


async def test_a_trainer_that_rewound_learns_that_another_one_did_so_afterwards(run: Settings) -> None:
    async with AsyncTrainer(run) as first, AsyncTrainer(run) as second, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        assert await _trained(first) == 1
        await second.rewind(0)
        with pytest.raises(RunRewound):
            await first.set_policy_version(1)
        await first.rewind(0)
        await second.rewind(0)
        async with aclosing(first.batches(wait_s=5)) as batches:
            with pytest.raises(RunRewound):
                await anext(batches)


async def test_a_rewind_whose_answer_breaks_off_counts_once(run: Settings, proxy: CuttingProxy) -> None:
    async with AsyncTrainer(run) as trainer:
        await trainer.run()
        proxy.cut("reply", 100)
        assert (await trainer.rewind(0)).rewinds == 1
        assert proxy.cuts == 1
        assert (await trainer.rewind(0)).rewinds == 2


async def test_a_trainer_that_waits_while_the_run_is_rewound_learns_it_at_once(run: Settings) -> None:
    async with AsyncTrainer(run) as waiting, AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        batch = await waiting.take()
        assert batch is not None
        await batch.ack()
        asking = [asyncio.create_task(waiting.take(wait_s=60)) for _ in range(2)]
        fresh = asyncio.create_task(trainer.take(wait_s=60))

        async def all_wait() -> bool:
            metrics = await asyncio.to_thread(httpx.get, f"{run.url}/metrics", trust_env=False)
            return re.search(r"^lachesis_long_polls_waiting{.*} 3\.0$", metrics.text, re.MULTILINE) is not None

        await wait_until(all_wait)
        async with AsyncTrainer(run) as other:
            await other.rewind(0)
        for one in asking:
            with pytest.raises(RunRewound):
                await one
        again = await fresh
        assert again is not None
        assert again.step == 1


async def test_rewound_batches_stay_whole_and_in_order_when_the_loop_is_left(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await trainer.change_run(max_staleness=0)
        await submitted(environment, [group(position, policy_version=0) for position in range(1, 9)])
        first = [await _trained(trainer) for _ in range(4)]
        await trainer.rewind(1)
        await trainer.set_policy_version(7)
        for _ in range(2):
            async with aclosing(trainer.batches(prefetch=3, wait_s=5)) as batches:
                assert (await anext(batches)).step == 2
        assert [await _trained(trainer) for _ in range(3)] == first[1:]
        assert (await trainer.status()).dropped == {}


@pytest.mark.parametrize("prefetch", [1, 2])
async def test_a_loop_that_is_left_after_a_rewind_takes_nothing_from_the_next_one(run: Settings, prefetch: int) -> None:
    """Left by `break`, its iterator is closed only after the next loop has begun."""
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(position) for position in range(1, 13)])
        async for batch in trainer.batches(prefetch=prefetch, wait_s=5):
            await batch.ack()
            if batch.step == 3:
                await trainer.rewind(1)
                break
        steps = []
        async for batch in trainer.batches(prefetch=prefetch, wait_s=5):
            await batch.ack()
            steps.append(batch.step)
            if batch.step == 6:
                break
        assert steps == [2, 3, 4, 5, 6]


async def test_after_a_rewind_a_loop_takes_new_batches_of_the_restored_version(run: Settings) -> None:
    """The version it told last was a later one, by which they would be too old."""
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await trainer.change_run(max_staleness=0)
        async with aclosing(trainer.batches(prefetch=1, wait_s=10)) as batches:
            await submitted(environment, [group(1, policy_version=0), group(2, policy_version=0)])
            batch = await anext(batches)
            await batch.ack()
            await trainer.checkpoint(batch.step)
            await trainer.set_policy_version(5)
            assert (await trainer.rewind(batch.step)).policy_version == 0
            await submitted(environment, [group(3, policy_version=0), group(4, policy_version=0)])
            new = await anext(batches)
            assert (new.info.delivery_count, [one.info.policy_version for one in new.groups]) == (1, [0, 0])


async def test_a_rewind_that_is_impossible_leaves_the_loop_what_it_had(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(position) for position in range(1, 9)])
        async with aclosing(trainer.batches(prefetch=1, wait_s=5)) as batches:
            for _ in range(2):
                batch = await anext(batches)
                await batch.ack()
            await wait_until(lambda: _has(trainer, leased=2))
            await trainer.checkpoint(batch.step)
            with pytest.raises(RewindImpossible):
                await trainer.rewind(0)
            for step in (3, 4):
                batch = await anext(batches)
                assert batch.step == step
                await batch.ack()


async def _has(trainer: AsyncTrainer, **expected: int) -> bool:
    found = await counts(trainer)
    return all(found[name] == count for name, count in expected.items())


async def _trained(trainer: AsyncTrainer) -> int:
    """Take a batch and acknowledge it; its step."""
    batch = await trainer.take(wait_s=5)
    assert batch is not None
    await batch.ack()
    return batch.step
