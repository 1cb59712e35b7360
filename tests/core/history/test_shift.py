"""Sentences about trained and generated groups say which way, by how much, and when there is no difference."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.history.shift import development, shift
from app.core.history.sketch import Sketch


@pytest.mark.parametrize(
    ("value", "generated", "trained", "said"),
    [
        ("length", [100, 200], [123.0], "Trained sequences are 18 % shorter than generated ones."),
        ("length", [100], [300], "Trained sequences are 200 % longer than generated ones."),
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
        ("reward", [-10, 0], [-5.05], "Groups trained on have the same mean reward as generated ones, -5.05."),
        ("reward", [0.5], [0.5], "Groups trained on have the same mean reward as generated ones, 0.5."),
        ("reward", [0.5], [], None),
        ("staleness", [], [3], None),
        ("waiting", [], [], None),
        ("waiting", [], [0], "Half of the groups trained on had waited at least 0 s, and a tenth at least 0 s."),
        ("waiting", [], [1.5], "Half of the groups trained on had waited at least 1.5 s, and a tenth at least 1.5 s."),
        (
            "waiting",
            [],
            [41] * 5 + [120] * 5,
            "Half of the groups trained on had waited at least 41 s, and a tenth at least 2 min.",
        ),
        (
            "waiting",
            [],
            [10] * 4 + [20] * 3 + [1.3e7] * 3,
            "Half of the groups trained on had waited at least 20 s, and a tenth at least 150 d.",
        ),
        (
            "waiting",
            [],
            [5400, 2.5e6],
            "Half of the groups trained on had waited at least 1.5 h, and a tenth at least 1.5 h.",
        ),
    ],
)
def test_the_shift_is_said_in_words(value: str, generated: list[float], trained: list[float], said: str | None) -> None:
    assert shift(value, Sketch.of(generated), Sketch.of(trained)) == said


def sketches(*spans: list[float]) -> list[Sketch]:
    return [Sketch.of(values) for values in spans]


@pytest.mark.parametrize(
    ("value", "generated", "trained", "said"),
    [
        (
            "reward",
            sketches([0, 1], [0, 1]),
            sketches([1], [0]),
            "the mean reward of trained groups was 0.5 higher in the first half and 0.5 lower in the second half.",
        ),
        (
            "length",
            sketches([100], [], [100], [200]),
            sketches([], [], [100], [150]),
            "trained sequences were as long in the first half and 25 % shorter in the second half.",
        ),
        ("length", sketches([100], [100]), sketches([100], []), None),
        ("reward", sketches([], [1]), sketches([1], [1]), None),
        ("reward", sketches([1], [1]), sketches([], []), None),
        ("reward", [], [], None),
    ],
)
def test_the_development_is_said_in_words(
    value: str, generated: list[Sketch], trained: list[Sketch], said: str | None
) -> None:
    expected = None if said is None else f"Compared with generated ones, {said}"
    assert development(value, generated, trained) == expected


values = st.lists(st.integers(1, 9).map(float), min_size=1, max_size=5)
halves = st.lists(st.tuples(values, values), min_size=1, max_size=3)


@given(halves, halves, st.integers(0, 3))
def test_the_development_is_the_shift_of_both_halves(
    early: list[tuple[list[float], list[float]]], late: list[tuple[list[float], list[float]]], silent: int
) -> None:
    """Spans in which nothing was trained on, before and after, do not move the middle."""
    count = min(len(early), len(late))
    both = early[:count] + late[:count]
    around: list[tuple[list[float], list[float]]] = [([5.0], [])] * silent
    spans = around + both + around
    found = development("reward", sketches(*(came for came, _ in spans)), sketches(*(went for _, went in spans)))
    assert found is not None
    said = re.findall(r"([\d.e-]+ (?:higher|lower)|the same) in the", found)
    for half, words in zip((both[:count], both[count:]), said, strict=True):
        came, went = (Sketch.of([value for part in half for value in part[way]]) for way in (0, 1))
        whole = shift("reward", came, went)
        assert whole is not None
        assert words in whole
