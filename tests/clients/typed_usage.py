"""Uses of the SDK whose types are asserted; `test_typing.py` has mypy look at this file. It is never run."""

from collections import Counter
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from lachesis import (
    AsyncBatch,
    AsyncCurriculum,
    AsyncEnvironment,
    AsyncReplay,
    AsyncSample,
    AsyncTrainer,
    Batch,
    Curriculum,
    Environment,
    Group,
    GroupView,
    Replay,
    Sample,
    Settings,
    Trainer,
)
from lachesis.wire.batches import BatchInfo, Explanation, LeasedBatches
from lachesis.wire.curricula import CurriculumInfo, StateLoaded
from lachesis.wire.curriculum_items import Comparison, Item, ItemDetails, ItemsRegistered, SampledItem, SampledItems
from lachesis.wire.environments import Credits
from lachesis.wire.groups import GroupHistory, GroupOutcome
from lachesis.wire.replay import Chunk, ReplayState
from lachesis.wire.runs import RetentionState, Rewound, Run
from lachesis.wire.samples import Record
from lachesis.wire.snapshots import ReplaySnapshot
from lachesis.wire.status import RunStatus


def train(trainer: Trainer) -> None:
    assert_type(trainer.create_run(batch_size=8, max_staleness=None, lease_s=60), Run)
    assert_type(trainer.change_run(batch_size=16, archived=False), Run)
    for batch in trainer.batches(prefetch=2, wait_s=60):
        assert_type(batch, Batch)
        assert_type(batch.info, BatchInfo)
        assert_type(batch.groups, list[GroupView])
        assert_type(batch.groups[0].item, str | None)
        assert_type(batch.groups[0].staleness, int | None)
        assert_type(batch.tokens, NDArray[Any])
        assert_type(batch.cu_seqlens, NDArray[np.int32])
        assert_type(batch.tokens_padded(0), NDArray[Any])
        assert_type(batch.to_torch(), dict[str, Any])
        assert_type(batch.extend(), float)
        with batch as held:
            assert_type(held, Batch)
    assert_type(trainer.take(wait_s=5), Batch | None)
    assert_type(trainer.set_policy_version(3), int)
    assert_type(trainer.checkpoint(3), RetentionState)
    assert_type(trainer.rewind(3), Rewound)
    assert_type(trainer.explain(), Explanation)
    assert_type(trainer.status(), RunStatus)
    assert_type(trainer.leased_batches(), LeasedBatches)
    assert_type(trainer.annotate_group("a", {"entropy": [[0.5], np.zeros(3, np.float32)]}), list[str])
    assert_type(trainer.find_group("a"), GroupHistory)
    assert_type(trainer.delete_group("a"), None)
    assert_type(trainer.delete_groups(environment="none", older_than_version=3), int)
    trainer.delete_groups(environment="math", score_max=0.5)
    trainer.delete_groups(environment=["math"])  # type: ignore[arg-type]
    trainer.delete_groups(enviroment="math")  # type: ignore[call-arg]
    trainer.create_run(batch_size="8")  # type: ignore[arg-type]
    trainer.create_run(8, leases_s=60)  # type: ignore[call-arg]
    trainer.change_run(name="other")  # type: ignore[call-arg]


async def train_async(settings: Settings) -> None:
    async with AsyncTrainer(settings, name="rank 0") as trainer:
        async for batch in trainer.batches():
            assert_type(batch, AsyncBatch)
            assert_type(await batch.ack(), None)
        assert_type(await trainer.take(), AsyncBatch | None)
        assert_type(await trainer.status(), RunStatus)


def made(url: str) -> None:
    assert_type(Trainer(url, run="math").settings, Settings)
    assert_type(AsyncTrainer(url=url).settings, Settings)
    assert_type(AsyncEnvironment("gsm8k", url=url, wait_for_run_s=60).settings, Settings)
    Trainer(uri=url)  # type: ignore[call-arg]
    Trainer(8000)  # type: ignore[arg-type]


async def make() -> None:
    async with AsyncEnvironment("gsm8k", Settings.from_env(), group_size=2, min_share=0.5) as environment:
        async with environment.permit() as permit:
            assert_type(permit, Credits)
            group = Group([[1, 2], [3]], [np.arange(2), np.arange(1)], [1, 0.5], metadata={"a": [1]})
            assert_type(await environment.submit(group), str)
        assert_type(environment.outcomes, Counter[GroupOutcome])
    Group([1, 2], [[1]], [1.0])  # type: ignore[arg-type]
    Group([[1]], [[1]], "1")  # type: ignore[arg-type]


def make_without_a_loop() -> None:
    Environment("gsm8k", group_sizes=2)  # type: ignore[call-arg]
    url = "http://lachesis:8000"
    with Environment("gsm8k", url, run="math", group_size=2) as environment, environment.permit(60) as permit:
        assert_type(permit.policy_version, int)
        assert_type(environment.submit(Group(np.ones((2, 2), int), np.ones((2, 2), int), np.ones(2))), str)


async def replay(settings: Settings) -> None:
    async with AsyncReplay(settings) as buffer, buffer.worker("worker-0", steps=32) as worker:
        assert_type(await buffer.set_up(max_chunks=1000, eviction="oldest", max_reuse=None), ReplayState)
        assert_type(await worker.insert({"obs": np.ones((4, 2))}, [1, 1, 2, 2], reward=1.0), None)
        async for sample in buffer.samples(num_chunks=32, strategy="rank"):
            assert_type(sample, AsyncSample)
            assert_type(sample.records, list[Record])
            assert_type(sample.importance_weights, NDArray[np.float64])
        await buffer.change(max_reuses=2)  # type: ignore[call-arg]
        await buffer.change(eviction="newest")  # type: ignore[arg-type]
        buffer.samples(num_chunks=32, strategy="best")  # type: ignore[arg-type]


def replay_without_a_loop() -> None:
    with Replay("http://lachesis:8000", run="robots") as buffer:
        for sample in buffer.samples(num_fragments=64, prefetch=2, lease_s=60):
            assert_type(sample, Sample)
            assert_type(sample.ack(), None)
        assert_type(buffer.set_priorities({1: 0.5}), list[int])
        assert_type(next(buffer.chunks(sort="uses", place="archived")), Chunk)
        assert_type(buffer.snapshot("step-1000"), ReplaySnapshot)
        assert_type(buffer.restore("step-1000"), ReplayState)


async def curriculum(settings: Settings) -> None:
    async with (
        AsyncEnvironment("gsm8k", settings) as environment,
        AsyncCurriculum("gsm8k", url="http://lachesis:8000") as own,
    ):
        assert_type(own, AsyncCurriculum)
        shared = environment.curriculum("gsm8k")
        assert_type(shared, AsyncCurriculum)
        assert_type(await shared.set_up(strategy="plr", n_bins=10, total_steps=None), CurriculumInfo)
        assert_type(await shared.register(["a", {"key": "b", "prior": 0.5}]), ItemsRegistered)
        async for item in shared.items(prefetch=64, step=lambda: 3, strategy="bandit"):
            assert_type(item, SampledItem)
            assert_type(item.probability, float | None)
            assert_type(item.metadata, dict[str, Any] | None)
            assert_type(await shared.observe(item, np.ones(4)), None)
        assert_type(await shared.observe("a", [1.0, 0]), None)
        assert_type(await shared.sample(8, step=3, seed=1), SampledItems)
        assert_type(await shared.bins(8), list[int])
        assert_type(await shared.change_item("a", prior=None), ItemDetails)
        assert_type(await shared.metrics(), dict[str, float])
        assert_type(await shared.what_if(strategy="thompson"), Comparison)
        assert_type(await shared.load_state(await shared.state()), StateLoaded)
        assert_type(await shared.release(await shared.sample(2), ["gsm8k/17"]), int)
        assert_type(await AsyncTrainer(settings).curriculum("gsm8k").info(), CurriculumInfo)
        async for known in shared.list_items(sort="signal", descending=True):
            assert_type(known, Item)
        await shared.change(n_bin=3)  # type: ignore[call-arg]
        await shared.set_up(strategy="hardest")  # type: ignore[arg-type]
        await shared.observe("a", 1.0)  # type: ignore[arg-type]
        shared.items(strategy="hardest")  # type: ignore[arg-type]


def curriculum_without_a_loop() -> None:
    with Environment("gsm8k") as environment, Curriculum("gsm8k", run="math") as own:
        assert_type(own.info(), CurriculumInfo)
        assert_type(Trainer().curriculum("gsm8k"), Curriculum)
        for item in environment.curriculum().items(prefetch=8):
            assert_type(item, SampledItem)
            assert_type(environment.curriculum().observe(item, [1.0]), None)
