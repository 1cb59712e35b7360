"""The race of a draw without replacement. `tests/core/replay/test_sampling.py` compares it with the distribution."""

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.numeric import weighted_without_replacement
from app.core.numeric.weighted_without_replacement import Places, sample_without_replacement


def race(places: int, wanted: int, seed: int) -> list[int]:
    """Draw so that only a few places are found before the race."""
    generator = np.random.Generator(np.random.Philox(key=seed))
    drawn: list[int] = sample_without_replacement(
        lambda count: generator.integers(0, 5, count),
        lambda these: np.where(these < 5, 0.0, -30.0 - these % 3),
        places,
        wanted,
        generator,
    ).tolist()
    return drawn


def test_a_race_in_parts_has_the_order_of_one_race(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(places, wanted, seed) for places in (6, 30, 500) for wanted in (6, places) for seed in range(5)]
    whole = [race(*case) for case in cases]
    for at_once in (1, 7, 100):
        monkeypatch.setattr(weighted_without_replacement, "_AT_ONCE", at_once)
        assert [race(*case) for case in cases] == whole
    assert [len(set(drawn)) for drawn in whole] == [wanted for _, wanted, _ in cases]


def test_a_race_holds_a_part_of_very_many_places_at_once() -> None:
    most = 0

    def log_weights(these: Places) -> NDArray[np.float64]:
        nonlocal most
        most = max(most, len(these))
        return np.zeros(len(these))

    generator = np.random.Generator(np.random.Philox(key=1))
    drawn = sample_without_replacement(lambda count: np.zeros(count, np.int64), log_weights, 10**6, 10, generator)
    assert len(set(drawn.tolist())) == 10
    assert most <= 2**18
