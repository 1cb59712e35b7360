"""The parts of `examples/demo`; that it learns, and survives, is tested end to end (`tests/e2e/test_demo.py`)."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.ports import free_port

REPOSITORY = Path(__file__).parents[3]
EXAMPLE = REPOSITORY / "examples" / "demo"
_SERVE = """
import sys
from pathlib import Path
from demo import Demo, running

demo = Demo(Path(sys.argv[1]), int(sys.argv[2]), groups=1, seed=0)
with running(demo.service):
    demo.wait_for_service()
    print(demo.service.output())
"""
MODULES = ("task", "policy")


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    """The modules `task` and `policy`, which are in no package."""
    monkeypatch.syspath_prepend(EXAMPLE)
    yield tuple(__import__(name) for name in MODULES)  # type: ignore[misc]
    for name in MODULES:
        del sys.modules[name]


Modules = tuple[ModuleType, ModuleType]


def test_answers_are_right_and_as_long_as_their_tasks_say(demo: Modules) -> None:
    task, _ = demo
    for kind in task.KINDS:
        tasks = task.tasks_of(kind)
        assert tasks == task.tasks_of(kind)
        assert {len(each.answer) for each in tasks.values()} == set(range(1, task.LONGEST + 1))
        for each in tasks.values():
            name, *operands = each.prompt.split()
            assert name == kind
            expected = {
                "sum": lambda operands=operands: str(sum(map(int, operands))).zfill(len(operands[0])),
                "reverse": lambda operands=operands: "".join(reversed(operands[0])),
                "shift": lambda operands=operands: "".join("bcda"["abcd".index(letter)] for letter in operands[0]),
            }[kind]()
            assert each.answer == expected
            assert (each.reward(expected), each.reward(expected + "0")) == (1.0, 0.0)


def test_a_policy_can_solve_every_task_and_an_untrained_one_hardly_any(demo: Modules) -> None:
    task, policy = demo
    tasks = [each for kind in task.KINDS for each in task.tasks_of(kind).values()]
    untrained, perfect = policy.Policy(0), policy.Policy(0)
    for each in tasks:
        for row, character in zip(policy.rows_of(each.prompt), each.answer, strict=True):
            perfect.weights[row, task.ALPHABET.index(character)] = 50
    chances = np.array([[who.chance(each.prompt, each.answer) for each in tasks] for who in (untrained, perfect)])
    assert chances[0].mean() < 0.02
    assert chances[1].min() > 0.99


def test_the_gradient_is_that_of_finite_differences(demo: Modules) -> None:
    """Of the clipped loss, with ratios on both sides of both bounds."""
    task, policy = demo
    rng = np.random.default_rng(0)
    old, new = policy.Policy(0), policy.Policy(0)
    old.weights = rng.normal(size=old.weights.shape)
    new.weights = old.weights + rng.normal(0, 0.5, size=old.weights.shape)
    prompt = "sum 0123 3210"
    answers, sampled = old.sample(prompt, 32, rng)
    labels = np.array([policy.tokens_of(answer) for answer in answers])
    advantages = rng.normal(size=32)

    def loss(weights: np.ndarray) -> float:
        at = policy.Policy(0)
        at.weights = weights
        total = 0.0
        logprobs = at.logprobs(policy.rows_of(prompt))
        for answer, before, advantage in zip(answers, sampled, advantages, strict=True):
            for place, character in enumerate(answer):
                ratio = np.exp(logprobs[place, task.ALPHABET.index(character)] - before[place])
                bounded = np.clip(ratio, 1 - policy.CLIP, 1 + policy.CLIP)
                entropy = -(np.exp(logprobs[place]) * logprobs[place]).sum()
                total -= min(ratio * advantage, bounded * advantage) + policy.ENTROPY * entropy
        return total

    found = new.gradient(prompt, labels, sampled, advantages)
    for _ in range(5):
        direction = rng.normal(size=found.shape)
        low, high = (loss(new.weights + side * 1e-6 * direction) for side in (-1, 1))
        assert (found * direction).sum() == pytest.approx((high - low) / 2e-6, rel=1e-4)


def test_answers_are_sampled_as_often_as_their_chances_say(demo: Modules) -> None:
    _, policy = demo
    rng = np.random.default_rng(1)
    sampling = policy.Policy(0)
    sampling.weights = rng.normal(0, 2, sampling.weights.shape)
    answers, logprobs = sampling.sample("reverse ab", 20_000, rng)
    for answer in set(answers[:50]):
        chance = sampling.chance("reverse ab", answer)
        assert answers.count(answer) / len(answers) == pytest.approx(chance, abs=0.02)
        assert np.exp(logprobs[answers.index(answer)].sum()) == pytest.approx(chance)


def test_a_saved_policy_learns_on_as_if_it_had_never_stopped(demo: Modules, tmp_path: Path) -> None:
    _, policy = demo
    going, path = policy.Policy(0), tmp_path / "policy.npz"
    gradients = np.random.default_rng(2).normal(size=(4, *going.weights.shape))
    for gradient in gradients[:2]:
        going.descend(gradient)
    going.step, going.version = 7, 9
    going.save(path)
    stopped = policy.Policy.load(path)
    assert (stopped.step, stopped.version, stopped.updates) == (7, 9, 2)
    for gradient in gradients[2:]:
        going.descend(gradient)
        stopped.descend(gradient)
    assert np.array_equal(going.weights, stopped.weights)
    assert [file.name for file in tmp_path.iterdir()] == ["policy.npz"]


@pytest.mark.long
def test_the_service_of_the_demo_does_not_use_the_settings_of_another(tmp_path: Path) -> None:
    """The clone has a `.env` file, as operators write it."""
    clone, folder = tmp_path / "clone", tmp_path / "demo"
    folder.mkdir()
    shutil.copytree(EXAMPLE, clone / "examples" / "demo", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("app", "clients"):
        (clone / name).symlink_to(REPOSITORY / name)
    lines = ("REDIS_URL=redis://127.0.0.1:1", "STORE_PATIENCE_S=0.1", "ADMIN_TOKEN_FILE=/nowhere", "TLS_CERT=/nowhere")
    (clone / ".env").write_text("".join(f"LACHESIS_{line}\n" for line in lines))
    env = {name: value for name, value in os.environ.items() if not name.startswith("LACHESIS_")}
    done = subprocess.run(
        [sys.executable, "-c", _SERVE, folder, str(free_port())],
        cwd=clone / "examples" / "demo",
        env=env | {"PYTHONPATH": str(REPOSITORY / "clients")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"embedded Valkey 9.1.2 in {folder}/data/" in done.stdout
