"""The Python in the README and on pages of docs/ runs as it is written, against a real service."""

import ast
import asyncio
import inspect
import re
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lachesis
from lachesis import AsyncCurriculum, AsyncEnvironment, AsyncReplay, AsyncTrainer, Group, Settings
from lachesis.wire.filters import PassRateFilter
from tests.clients.run import counts
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
PAGES = ("README.md", "docs/how-to/python-sdk.md")
BATCH_SIZE, GROUP_SIZE = 128, 8
ADDRESSES = ("http://127.0.0.1:8000", "http://lachesis:8000")


class Enough(Exception):
    """A reader's model has seen all that there was to train on."""


def snippets(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)


def statements(of: str, page: str) -> list[ast.stmt]:
    """All statements of a page's snippets that use ``of``, or import."""
    parsed = [statement for snippet in snippets(page) for statement in ast.parse(snippet).body]
    return [one for one in parsed if isinstance(one, ast.ImportFrom) or f"{of}(" in ast.unparse(one)]


async def run_as_written(chosen: list[ast.stmt], settings: Settings, given: dict[str, Any]) -> dict[str, Any]:
    """Run statements as in a notebook, with what a reader would bring, in a thread; the names they leave."""
    source = ast.unparse(ast.Module(chosen, []))
    for address in ADDRESSES:
        source = source.replace(address, settings.url)
    code = compile(source, "<snippet>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = dict(given)

    def story() -> None:
        running = eval(code, names)
        if inspect.iscoroutine(running):
            asyncio.run(running)

    await asyncio.to_thread(story)
    return names


def with_blocks(of: str, page: str) -> list[ast.stmt]:
    return [one for one in statements(of, page) if isinstance(one, (ast.ImportFrom, ast.With, ast.AsyncWith))]


@pytest.fixture
def reader(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Where the reader's variables point to."""
    monkeypatch.setenv("LACHESIS_URL", settings.url)
    monkeypatch.setenv("LACHESIS_RUN", settings.run)
    return settings


@pytest.mark.parametrize("page", PAGES)
async def test_the_trainer_of_a_page_trains_and_its_environment_submits(page: str, reader: Settings) -> None:
    trained: list[tuple[int, ...]] = []

    def train(tokens: Any, *_: Any) -> None:
        trained.append(tokens.shape)
        if len(trained) == 2:
            raise Enough

    async def rollout(policy_version: int) -> tuple[list[list[int]], list[list[int]], list[float]]:
        assert policy_version == 0
        return tokens, tokens, [1.0] * GROUP_SIZE

    tokens = [[1, 2, 3]] * GROUP_SIZE
    brought = {"rollout": rollout, "tokens": tokens, "masks": tokens, "scores": [1.0] * GROUP_SIZE}
    async with AsyncTrainer(reader) as watching:
        await watching.create_run(batch_size=BATCH_SIZE, max_staleness=4)
        await run_as_written(with_blocks("Environment", page), reader, brought)
        assert (await watching.status()).queue_size == 1
        async with AsyncEnvironment("other", reader, group_size=GROUP_SIZE) as environment:
            for _ in range(2 * BATCH_SIZE // GROUP_SIZE - 1):
                await environment.submit(Group(tokens, tokens, [1.0] * GROUP_SIZE))
        with pytest.raises(Enough):
            await run_as_written(with_blocks("Trainer", page), reader, {"train": train, "pad_id": 0})
        assert trained == [(BATCH_SIZE, 3)] * 2
        await wait_until(lambda: _has(watching, {"queued": 16, "leased": 0, "delivered": 16}))


async def test_two_workers_that_do_what_the_page_does_are_members_of_one_environment(reader: Settings) -> None:
    both_have_joined = threading.Barrier(2, timeout=60)

    async def rollout(policy_version: int) -> tuple[list[list[int]], list[list[int]], list[float]]:
        await asyncio.to_thread(both_have_joined.wait)
        return [[1]] * GROUP_SIZE, [[1]] * GROUP_SIZE, [1.0] * GROUP_SIZE

    (page,) = snippets("docs/how-to/many-workers.md")
    async with AsyncTrainer(reader) as watching:
        await watching.create_run(batch_size=BATCH_SIZE, max_staleness=4)
        await asyncio.gather(*(run_as_written(ast.parse(page).body, reader, {"rollout": rollout}) for _ in range(2)))
        (environment,) = (await watching.status()).environments
        assert (environment.queued_groups, environment.members, environment.alive) == (2, 0, False)


async def _has(trainer: AsyncTrainer, expected: dict[str, int]) -> bool:
    return await counts(trainer) == expected


async def test_every_way_to_make_one_on_the_page_does_so(reader: Settings) -> None:
    made: list[Settings] = []

    def noting(cls: type) -> Callable[..., None]:
        return lambda *arguments, **named: made.append(cls(*arguments, **named).settings)

    settings = ast.parse(snippets("docs/how-to/python-sdk.md")[0]).body
    calls = [one for one in settings if isinstance(one, ast.Expr)]
    await run_as_written(
        calls,
        reader,
        {
            **vars(lachesis),
            "Settings": Settings,
            **{name: noting(getattr(lachesis, name)) for name in ("Trainer", "AsyncEnvironment")},
        },
    )
    assert len(made) == len(calls) == 4
    assert {(one.url, one.run) for one in made} == {(reader.url, reader.run)}


async def test_a_new_run_of_the_page_on_replay_mixes_old_groups_into_batches(reader: Settings) -> None:
    at_home, classes = Settings(reader.url, run="math"), {"Trainer": lachesis.Trainer, "Replay": lachesis.Replay}
    await run_as_written(ast.parse(snippets("docs/how-to/replay.md")[2]).body, at_home, classes)
    async with AsyncTrainer(at_home) as trainer, AsyncReplay(at_home) as replay:
        assert ((await trainer.run()).fresh_fraction, (await replay.state()).settings.groups) == (0.5, True)


async def test_the_workers_of_the_page_on_replay_play_and_its_trainer_trains(reader: Settings) -> None:
    shapes: list[tuple[int, ...]] = []

    async def play() -> AsyncIterator[tuple[str, Any, int, Any]]:
        for number in range(4):
            yield f"e{number}", {"obs": np.ones((512, 3))}, 0, np.ones(512)

    def train(data: Any, weights: Any) -> list[float]:
        assert weights.shape == (32,)
        shapes.append(data["obs"].shape)
        if len(shapes) == 3:
            raise Enough
        return [1.0] * 32

    at_home = Settings(reader.url, run="robots")
    worker, sampler, _, saver = snippets("docs/how-to/replay.md")
    async with AsyncReplay(at_home) as replay:
        playing = asyncio.create_task(run_as_written(ast.parse(worker).body, at_home, {"play": play}))
        with pytest.raises(Enough):
            await run_as_written(ast.parse(sampler).body, at_home, {"train": train})
        await playing
        await run_as_written(ast.parse(saver).body, at_home, {"Replay": lachesis.Replay})
        assert [one.name for one in await replay.snapshots()] == ["step-1000"]
        state = await replay.state()
    assert shapes == [(32, 32, 3)] * 3
    assert (state.accepted_fragments, state.samples_held, state.limiter.samples) == (64, 0, 64)


async def test_a_batch_is_read_without_this_package_as_the_page_on_the_api_does(reader: Settings) -> None:
    at_hand = Settings(reader.url, run="hand")
    (page,) = snippets("docs/how-to/http-api.md")
    given = {
        "a": {"x": np.arange(6).reshape(2, 3), "0/x": np.float32(1.5), "labels": np.arange(3)},
        "b": {"x": np.arange(2, 5).reshape(1, 3), "0/x": np.float32(2.5)},
    }
    async with AsyncTrainer(at_hand) as trainer:
        await trainer.create_run(batch_size=3)
    async with AsyncEnvironment("gsm8k", at_hand) as environment:
        await environment.submit(Group([[1, 2], [3]], [[1, 2], [3]], [1, 0], id="a", tensors=given["a"]))
        await environment.submit(Group([[4, 5]], [[4, 5]], [1], id="b", tensors=given["b"]))
        await environment.flush()
    names = await run_as_written(ast.parse(page).body, at_hand, {})
    assert [sequence.tolist() for sequence in names["sequences"]] == [[1, 2], [3], [4, 5]]
    assert names["columns"]["scores"].tolist() == [1, 0, 1]
    assert [group["tokens"].tolist() for group in names["groups"]] == [[1, 2, 3], [4, 5]]
    assert [group["id"] for group in names["groups"]] == list(given)
    for group, own in zip(names["groups"], given.values(), strict=True):
        assert group.keys() - own.keys() == {"id", "tokens", "tokens.lengths", "masks", "scores", "details"}
        assert all(np.array_equal(group[name], array) for name, array in own.items())


async def test_the_filters_of_the_page_on_admission_are_set_and_find_groups(reader: Settings) -> None:
    (page,) = snippets("docs/how-to/filters.md")
    await run_as_written(ast.parse(page).body, reader, {})
    rewards = {"accepted": [1.0] + [0.0] * 9, "kept": [1.0] * 10, "pass_rate": [0.0] * 10}
    math = Settings(reader.url, run="math")
    async with AsyncTrainer(math) as trainer, AsyncEnvironment("gsm8k", math, group_size=10) as environment:
        run = await trainer.change_run(batch_size=20, filter_pass_rate=PassRateFilter(below=None))
        assert (run.filter_zero_variance, run.filter_pass_rate) == (None, PassRateFilter(below=None))
        for scores in rewards.values():
            await environment.submit(Group([[1]] * 10, [[1]] * 10, scores))
        await environment.flush()
        assert environment.outcomes == {"accepted": 2, "pass_rate": 1}
        batch = await trainer.take()
        assert batch is not None
        assert [group.info.filtered_by for group in batch.groups] == [None, "reward_range"]
        assert batch.loss_weights.tolist() == [1.0] * 10 + [0.1] * 10
        await batch.ack()


async def test_the_environment_of_the_page_on_curricula_tries_items_and_tells_their_rewards(reader: Settings) -> None:
    """The page's other environment is one of Atropos; the end-to-end tests run it."""
    tried = []

    async def attempt(task: Any) -> list[float]:
        tried.append(task)
        if len(tried) == 100:
            raise Enough
        return [0.0] * GROUP_SIZE

    tasks = [SimpleNamespace(kind=f"kind-{number % 3}") for number in range(80)]
    async with AsyncTrainer(reader) as trainer, AsyncCurriculum("gsm8k", reader) as curriculum:
        await trainer.create_run(batch_size=BATCH_SIZE)
        page = ast.parse(snippets("docs/how-to/curriculum.md")[0]).body
        with pytest.raises(Enough):
            await run_as_written(page, reader, {"tasks": tasks, "attempt": attempt})
        info = await curriculum.info()
    assert (info.items, info.observations, info.settings.strategy) == (80, 99, "learnability")
    assert len(info.categories) == 3
