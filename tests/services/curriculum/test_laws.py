"""End to end, items come as often as their strategy's distribution says, restricted to those that nobody has."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from lachesis.wire.curricula import CurriculumStrategy
from tests.core.numeric.chi_square import fits
from tests.services.conftest import RUN, Process
from tests.services.curriculum.runs import NAME, keys_of, make, observe, register, sample

pytestmark = pytest.mark.slow

Start = Callable[..., Process]
DRAWS = 500
SEEN = {f"seen{n}": [1.0] * n + [0.0] * (8 - n) for n in range(9)}
UNSEEN = ["new0", "new1", "new2"]


@pytest.mark.parametrize("strategy", ["learnability", "easy_first"])
async def test_items_come_as_often_as_they_should(process: Start, strategy: CurriculumStrategy) -> None:
    (one, _), (other, _) = process(), process()
    await make(one, strategy=strategy, n_bins=3, total_steps=10)
    await register(one, *UNSEEN)
    await observe(one, SEEN)
    taken = set(keys_of(await sample(one, 3)))
    await one.curriculum.administration.configure(RUN, NAME, {"in_flight_ttl_s": 0.0}, make=False)
    if strategy == "learnability":
        means = {key: (1 + sum(rewards)) / 10 for key, rewards in SEEN.items()} | dict.fromkeys(UNSEEN, 0.5)
        weights = {key: np.floor(mean * 128) / 128 + 1 / 256 for key, mean in means.items()}
        weights = {key: cell * (1 - cell) for key, cell in weights.items()}
    else:
        middle = [*(f"seen{n}" for n in (3, 4, 5)), *UNSEEN]
        bins = [[f"seen{n}" for n in (6, 7, 8)], middle, [f"seen{n}" for n in (0, 1, 2)]]
        weights = {key: np.exp(-bin_) / len(keys) for bin_, keys in enumerate(bins) for key in keys}
    counts: Counter[str] = Counter()
    for draw in range(DRAWS):
        services = (one, other)[draw % 2]
        (found,) = (await sample(services, 1)).items
        counts[found.item.key] += 1
        assert found.probability == pytest.approx(weights[found.item.key] / sum(weights.values()), rel=0.02)
    assert not taken & counts.keys()
    left = [key for key in weights if key not in taken]
    fits([counts[key] for key in left], np.array([weights[key] for key in left]) / sum(weights[key] for key in left))
