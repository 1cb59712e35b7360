"""The sentence about trained and generated groups says which way, by how much, and when there is no difference."""

import pytest

from app.core.history.shift import shift
from app.core.history.sketch import Sketch


@pytest.mark.parametrize(
    ("value", "generated", "trained", "said"),
    [
        ("length", [100, 200], [123.0], "Trained sequences are 18 % shorter than generated ones."),
        ("length", [100], [150], "Trained sequences are 50 % longer than generated ones."),
        ("length", [100, 102], [101], "Trained sequences are as long as generated ones, to 1 %."),
        ("length", [0], [0], "Trained sequences are as long as generated ones, to 1 %."),
        ("reward", [0, 1], [1], "The mean reward of groups trained on, 1, is 0.5 higher than that of generated ones."),
        (
            "reward",
            [-1, 0],
            [-1],
            "The mean reward of groups trained on, -1, is 0.5 lower than that of generated ones.",
        ),
        ("reward", [0, 1], [0.505], "Groups trained on have the same mean reward as generated ones, 0.505."),
        ("reward", [0.5], [0.5], "Groups trained on have the same mean reward as generated ones, 0.5."),
        ("reward", [0.5], [], None),
        ("staleness", [], [3], None),
    ],
)
def test_the_shift_is_said_in_words(value: str, generated: list[float], trained: list[float], said: str | None) -> None:
    assert shift(value, Sketch.of(generated), Sketch.of(trained)) == said
