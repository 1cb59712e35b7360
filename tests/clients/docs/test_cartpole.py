"""The arithmetic of `examples/cartpole.py`; that it learns is tested with the other examples."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.clients.docs.example_modules import load_example


def load_cartpole(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the example."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # it would be set by the example, for this process and ever after
    return load_example("cartpole.py")


@pytest.fixture
def cartpole(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_cartpole(monkeypatch)


def test_the_gradient_is_that_of_finite_differences(cartpole: ModuleType) -> None:
    rng = np.random.default_rng(0)
    weights = {name: array.astype(np.float64) for name, array in cartpole.new_weights(rng).items()}
    observations, slope = rng.normal(size=(32, 4)), rng.normal(size=(32, 2))
    found = cartpole.gradient(weights, cartpole.activations(weights, observations), slope)
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        direction, width = rng.normal(size=array.shape), 1e-6
        low, high = (
            (cartpole.values(weights | {name: array + side * width * direction}, observations) * slope).sum()
            for side in (-1, 1)
        )
        assert (found[name] * direction).sum() == pytest.approx((high - low) / (2 * width), rel=1e-4), name


def test_targets_are_rewards_up_to_an_end_plus_the_value_beyond(cartpole: ModuleType) -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        reward, after = rng.normal(size=(2, 3, 8))
        terminated, truncated = rng.random((2, 3, 8)) < 0.2
        found = cartpole.targets(reward, terminated, truncated, after)
        for row in range(3):
            for step in range(8):
                rows = (reward[row], terminated[row], truncated[row], after[row])
                wanted = target_of(step, *rows, cartpole.DISCOUNT, cartpole.STEPS_AHEAD)
                assert found[row, step] == pytest.approx(wanted)


def target_of(
    step: int, reward: Any, terminated: Any, truncated: Any, after: Any, discount: float, ahead: int
) -> float:
    """Follow one step as far as one may see."""
    total, worth = 0.0, 1.0
    for seen in range(step, min(step + ahead, len(reward))):
        total += worth * reward[seen]
        worth *= discount
        if terminated[seen]:
            return total
        if truncated[seen]:
            break
    return total + worth * float(after[seen])


def test_a_learner_comes_to_know_what_it_is_shown(cartpole: ModuleType) -> None:
    """Ways to fall, again and again: the values of the actions that led to it become -1. No weight, no lesson."""
    rng = np.random.default_rng(2)
    learner = cartpole.Learner(rng)
    shown = {
        "observation": rng.normal(size=(12, 4, 4)).astype(np.float32),
        "after": rng.normal(size=(12, 4, 4)).astype(np.float32),
        "action": rng.integers(2, size=(12, 4)),
        "reward": np.full((12, 4), -1.0),
        "terminated": np.ones((12, 4), bool),
        "truncated": np.zeros((12, 4), bool),
    }
    before = dict(learner.weights)
    first = learner.learn(shown, np.zeros(12))
    assert all((learner.weights[name] == array).all() for name, array in before.items())
    for _ in range(100):
        last = learner.learn(shown, np.ones(12))
    assert first.shape == last.shape == (12, 4)
    assert last.mean() < 0.1 * first.mean()
