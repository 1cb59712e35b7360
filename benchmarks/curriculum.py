"""What a curriculum is worth to a simulated learner: steps to a target, by strategy.

The learner (a Rasch model, the simplest of item response theory, that learns as policy gradients do):

- 10,000 items in four categories. The difficulty of an item of category c is b ~ Normal(c, 1.5), c = 0, 1, 2, 3. The
  ability in each category, theta_c, begins at 0.
- A try of an item succeeds with probability p = 1 / (1 + exp(b - theta_c)). A step trains on 128 groups of 8 tries.
- A group teaches by the variance of its rewards, 4 m (1 - m) for a mean of m. It teaches nothing if all tries succeed
  or all fail, which is what group-relative advantages do. The n-th training on the same item teaches 4 / (3 + n) of
  the first.
- theta_c grows by ETA * taught, summed over the step's groups of category c, and by a tenth of that for the others.

The target is a mean p of 0.6 over all items that can be learnt. In two harder populations a third of the items is *out
of reach* (b = 20: they never succeed) or *coin flips* (p = 1/2 whatever the ability; they teach nothing). Strategies
have their defaults, except the bandits' `temperature`. No strategy receives a difficulty. `total_steps` is about what
uniform sampling takes. ETA is such that uniform sampling takes some hundreds of steps. No number was tuned for a
strategy. The same seed gives all strategies the same items.
"""

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from app.core.curriculum.checks import progress
from benchmarks.arena import Arena
from benchmarks.results import Results, Table
from lachesis.wire.curricula import CurriculumSettings
from tests.core.curriculum.population import Population

Numbers = NDArray[np.float64]

ITEMS, CATEGORIES, SPREAD, OUT_OF_REACH = 10_000, 4, 1.5, 20.0
GROUPS, TRIES = 128, 8
ETA, SPILL, WEARS = 0.0005, 0.1, 4.0
TARGET, MOST_STEPS = 0.6, 1000
PLAIN, BEYOND, NOISE = "all can be learnt", "a third out of reach", "a third coin flips"
TOTAL_STEPS = {PLAIN: 275, BEYOND: 475, NOISE: 475}
CURVE_STEPS = range(0, 301, 50)
T_975 = {3: 4.303, 10: 2.262}
"""By number of seeds: how many standard errors a 95 % confidence interval is wide, to each side (Student's t)."""

STRATEGIES = {
    "uniform": CurriculumSettings(strategy="uniform"),
    "easy_first": CurriculumSettings(strategy="easy_first"),
    "competence_based, cdf": CurriculumSettings(strategy="competence_based"),
    "competence_based, frontier": CurriculumSettings(strategy="competence_based", form="frontier"),
    "learnability": CurriculumSettings(strategy="learnability"),
    "thompson": CurriculumSettings(strategy="thompson"),
    "plr": CurriculumSettings(strategy="plr"),
    "difficulty_pools": CurriculumSettings(strategy="difficulty_pools"),
    "bandit over bins": CurriculumSettings(strategy="bandit", temperature=0.1),
    "bandit over categories": CurriculumSettings(strategy="bandit", temperature=0.1, arms="categories"),
}


STEPS = Table(
    key="curriculum-steps",
    title="Curricula: a simulated learner's steps to its target",
    unit="steps",
    more_is_better=False,
    versus=(),
    note=f"Steps of {GROUPS} groups until the mean pass rate over {ITEMS:,} items (those that can be learnt) is "
    f"{TARGET}. The figure is the median of the seeds; {MOST_STEPS:,} stands for what takes longer. How the learner "
    "learns is written at the top of `benchmarks/curriculum.py`.",
)
SPEED = Table(
    key="curriculum-speed",
    title="Curricula: times as fast as uniform sampling",
    unit="times",
    more_is_better=True,
    versus=(),
    note="Steps of uniform sampling over the strategy's own, for the same items: the geometric mean over the seeds, "
    "and its 95 % confidence interval. It is an upper bound where the target was not reached.",
)
CURVE = Table(
    key="curriculum-curve",
    title="Curricula: mean pass rate after so many steps",
    unit="pass rate",
    more_is_better=True,
    versus=(),
    note=f"Where {PLAIN}; the mean of the seeds.",
)


@dataclass
class Learner:
    """Who tries items, and learns."""

    difficulty: Numbers
    category: NDArray[np.int64]
    flips: NDArray[np.bool_]
    random: np.random.Generator

    def __post_init__(self) -> None:
        self.ability = np.zeros(CATEGORIES)
        self.trained = np.zeros(len(self.difficulty), np.int64)

    def rates(self, items: NDArray[np.int64] | NDArray[np.bool_]) -> Numbers:
        """Return how likely items are to be solved."""
        rates = 1 / (1 + np.exp(self.difficulty[items] - self.ability[self.category[items]]))
        return np.where(self.flips[items], 0.5, rates)

    def train(self, items: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Try a step's items, and learn from it; whether each try succeeded, ``[items, TRIES]``."""
        passed = self.random.random((len(items), TRIES)) < self.rates(items)[:, None]
        mean = passed.mean(axis=1)
        taught = 4 * mean * (1 - mean) * WEARS / (WEARS + self.trained[items]) * ~self.flips[items]
        own = np.bincount(self.category[items], taught, CATEGORIES)
        self.ability += ETA * ((1 - SPILL) * own + SPILL * own.sum())
        self.trained[items] += 1
        return passed


def learner(case: str, seed: int) -> Learner:
    """Draw the items of a case."""
    random = np.random.default_rng(seed)
    category = random.integers(0, CATEGORIES, ITEMS)
    difficulty = random.normal(category, SPREAD)
    third = random.permutation(ITEMS) < (0 if case == PLAIN else ITEMS // 3)
    if case == BEYOND:
        difficulty[third] = OUT_OF_REACH
    return Learner(difficulty, category, third & (case == NOISE), random)


@dataclass(frozen=True)
class Job:
    """One learner's training."""

    case: str
    strategy: str
    seed: int


@dataclass(frozen=True)
class Trained:
    """The steps to the target, at most `MOST_STEPS`, and the mean pass rate at each of `CURVE_STEPS`."""

    steps: int
    curve: tuple[float, ...]


def train(job: Job) -> Trained:
    """Let a curriculum choose what a learner trains on, and learn from how it went."""
    student = learner(job.case, job.seed)
    learnable = (student.difficulty < OUT_OF_REACH) & ~student.flips
    given = {"seed": job.seed, "total_steps": TOTAL_STEPS[job.case]}
    policy = STRATEGIES[job.strategy].model_copy(update=given)
    curriculum = Population.of(policy, ITEMS, [str(each) for each in student.category])
    reached, curve = MOST_STEPS, list[float]()
    for step in range(MOST_STEPS + 1):
        rate = float(student.rates(learnable).mean())
        if step in CURVE_STEPS:
            curve.append(rate)
        if rate >= TARGET:
            reached = min(reached, step)
        if reached < MOST_STEPS and step >= CURVE_STEPS[-1]:
            break
        items = np.array(curriculum.sample(GROUPS, progress(policy, step)))
        curriculum.observe_all(items.tolist(), student.train(items).astype(float).tolist())
    return Trained(reached, tuple(curve))


async def measure(arena: Arena, results: Results) -> None:
    """Train learners by every strategy, on the same items."""
    seeds = range(10 if arena.effort.thorough else 3)
    jobs = [Job(case, strategy, seed) for seed in seeds for case in TOTAL_STEPS for strategy in STRATEGIES]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        note(dict(zip(jobs, pool.map(train, jobs), strict=True)), seeds, results)


def note(trained: Mapping[Job, Trained], seeds: Sequence[int], results: Results) -> None:
    """Add the results of the learners."""
    for case in TOTAL_STEPS:
        for strategy in STRATEGIES:
            own = [trained[Job(case, strategy, seed)] for seed in seeds]
            others = [trained[Job(case, "uniform", seed)] for seed in seeds]
            for each in own:
                results.add(STEPS, strategy, case, each.steps)
            if strategy != "uniform":
                logs = [math.log(other.steps / each.steps) for each, other in zip(own, others, strict=True)]
                for name, value in zip(("", ", from", ", to"), interval(logs), strict=True):
                    results.add(SPEED, strategy, case + name, math.exp(value))
            for step, rates in zip(CURVE_STEPS, zip(*(each.curve for each in own), strict=True), strict=True):
                if case == PLAIN:
                    results.add(CURVE, strategy, f"{step}", statistics.mean(rates))


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean, and where its 95 % confidence interval begins and ends."""
    mean = statistics.mean(values)
    error = T_975[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - error, mean + error
