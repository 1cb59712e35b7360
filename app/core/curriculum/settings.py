"""The settings of a curriculum, and what may not be set."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.core.errors import InvalidField

MAX_BINS = 100
MAX_CANDIDATES = 100_000
MAX_WEIGHT = 1e9
LEAST_TEMPERATURE, MAX_TEMPERATURE = 1e-6, 1e6
MAX_REWARD = 1e6
"""Largest magnitude of a reward, a prior, or a threshold: the store counts the mean reward of all items in 64 bits."""


class CurriculumStrategy(StrEnum):
    """How the next items are chosen; one file for each."""

    UNIFORM = "uniform"
    EASY_FIRST = "easy_first"
    COMPETENCE_BASED = "competence_based"
    LEARNABILITY = "learnability"
    THOMPSON = "thompson"
    PLR = "plr"
    DIFFICULTY_POOLS = "difficulty_pools"
    BANDIT = "bandit"


class Form(StrEnum):
    """Of COMPETENCE_BASED: the easiest share of items, growing with progress; or bins around the frontier."""

    CDF = "cdf"
    FRONTIER = "frontier"


class Arms(StrEnum):
    """Of BANDIT: what an arm is."""

    BINS = "bins"
    CATEGORIES = "categories"


@dataclass(frozen=True, slots=True)
class CurriculumPolicy:
    """How a curriculum estimates its items, and chooses among them.

    All strategies' parameters are there at all times, so a strategy can be switched and switched back. Names and
    defaults of the first six are those of Atropos's CurriculumScheduler. What a strategy needs none of, it ignores.

    Attributes:
        strategy: See `CurriculumStrategy`.
        n_bins: Quantile bins of mean reward, bin 0 the easiest; 1 to `MAX_BINS`.
        temperature: Log-probabilities are divided by it (1e-6 to 1e6): lower is sharper.
        ema_alpha: How much a group's mean reward counts in an item's mean reward, above 0 to 1.
        competence_threshold: Mean reward from which an item counts as mastered: of COMPETENCE_BASED, `FRONTIER`.
        total_steps: Trainer steps at which progress is 1, unless a request says otherwise; or None.
        in_flight_ttl_s: How long an item handed out is not handed out again while its score is awaited, seconds.
        reward_min: The reward that counts as a failure, for posteriors.
        reward_max: The one that counts as a success; between them, as a part of each. Beyond them, as at them.
        forgetting: What share of a posterior's evidence each further group makes obsolete, 0 to below 1.
        prior_weight: How many rewards a prior counts as in the posterior of an item not yet seen, 0 to 1e9.
        seed: Of the generator that draws, 0 to 2**64 - 1.
        form: Of COMPETENCE_BASED.
        initial_competence: Of COMPETENCE_BASED, `CDF`: the share of items to begin with, 0 to 1.
        frontier_width: Of COMPETENCE_BASED, `FRONTIER`: standard deviation of the Gaussian, bins; 1e-6 to 1e6.
        target_pass_rate: Of THOMPSON: items whose drawn pass rate is nearest are the best, 0 to 1.
        candidates: Of THOMPSON: how many items are compared at most, unless more are wanted; 1 to `MAX_CANDIDATES`.
        score_temperature: Of PLR: beta, 0.01 to 1e6: the score's rank to the power -1 / beta.
        staleness_share: Of PLR: rho, 0 to 1.
        unseen_share: Of PLR: nu, the probability of an unseen item while there are any, 0 to 1.
        hard_threshold: Of DIFFICULTY_POOLS: items whose last group's mean was no higher are hard.
        easy_threshold: Of DIFFICULTY_POOLS: items whose last group's mean was no lower are easy; above the other.
        hard_weight: Of DIFFICULTY_POOLS: how likely this pool is, relative to the others, 0 to 1e9, not all 0.
        normal_weight: The same of the normal pool.
        easy_weight: The same of the easy pool.
        arms: Of BANDIT.
        arm_alpha: Of BANDIT: how much an observation counts in its arm's value, above 0 to 1.
    """

    strategy: CurriculumStrategy = CurriculumStrategy.UNIFORM
    n_bins: int = 5
    temperature: float = 1.0
    ema_alpha: float = 0.3
    competence_threshold: float = 0.5
    total_steps: int | None = None
    in_flight_ttl_s: float = 600.0
    reward_min: float = 0.0
    reward_max: float = 1.0
    forgetting: float = 0.1
    prior_weight: float = 8.0
    seed: int = 0
    form: Form = Form.CDF
    initial_competence: float = 0.01
    frontier_width: float = 1.0
    target_pass_rate: float = 0.5
    candidates: int = 1024
    score_temperature: float = 0.1
    staleness_share: float = 0.1
    unseen_share: float = 0.5
    hard_threshold: float = 0.2
    easy_threshold: float = 0.8
    hard_weight: float = 0.2
    normal_weight: float = 0.6
    easy_weight: float = 0.2
    arms: Arms = Arms.BINS
    arm_alpha: float = 0.5


def of_their_kinds(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, some or all, with those members of enumerations that are given as text."""
    kinds = {"strategy": CurriculumStrategy, "form": Form, "arms": Arms}
    return dict(settings) | {name: kind(settings[name]) for name, kind in kinds.items() if name in settings}


def check_policy(policy: CurriculumPolicy) -> None:
    """Refuse a policy under which a curriculum cannot work.

    Raises:
        InvalidField: `location` names the field.
    """
    weights = (policy.hard_weight, policy.normal_weight, policy.easy_weight)
    _check(
        policy,
        n_bins=1 <= policy.n_bins <= MAX_BINS,
        temperature=LEAST_TEMPERATURE <= policy.temperature <= MAX_TEMPERATURE,
        ema_alpha=0 < policy.ema_alpha <= 1,
        competence_threshold=abs(policy.competence_threshold) <= MAX_REWARD,
        total_steps=policy.total_steps is None or policy.total_steps >= 1,
        in_flight_ttl_s=0 <= policy.in_flight_ttl_s < math.inf,
        reward_min=abs(policy.reward_min) <= MAX_REWARD,
        reward_max=policy.reward_min < policy.reward_max <= MAX_REWARD,
        forgetting=0 <= policy.forgetting < 1,
        prior_weight=0 <= policy.prior_weight <= MAX_WEIGHT,
        seed=0 <= policy.seed < 2**64,
        initial_competence=0 <= policy.initial_competence <= 1,
        frontier_width=LEAST_TEMPERATURE <= policy.frontier_width <= MAX_TEMPERATURE,
        target_pass_rate=0 <= policy.target_pass_rate <= 1,
        candidates=1 <= policy.candidates <= MAX_CANDIDATES,
        score_temperature=0.01 <= policy.score_temperature <= MAX_TEMPERATURE,
        staleness_share=0 <= policy.staleness_share <= 1,
        unseen_share=0 <= policy.unseen_share <= 1,
        hard_threshold=abs(policy.hard_threshold) <= MAX_REWARD,
        easy_threshold=policy.hard_threshold < policy.easy_threshold <= MAX_REWARD,
        hard_weight=0 <= policy.hard_weight <= MAX_WEIGHT,
        normal_weight=0 <= policy.normal_weight <= MAX_WEIGHT,
        easy_weight=0 <= policy.easy_weight <= MAX_WEIGHT,
        arm_alpha=0 < policy.arm_alpha <= 1,
    )
    if not any(weights):
        raise InvalidField("hard_weight, normal_weight and easy_weight are all 0", ("normal_weight",))


def progress(policy: CurriculumPolicy, step: int, total_steps: int | None = None) -> float:
    """Return how far training has come, 0 to 1: ``step / total_steps``, and 1 beyond.

    Args:
        policy: The curriculum's; its ``total_steps`` count where the request names none.
        step: Trainer steps so far, ``>= 0``.
        total_steps: As the request has it, ``>= 1``.

    Returns:
        Progress; 0 for strategies that do not ask for it, where nobody says what all steps are.

    Raises:
        InvalidField: A number is out of range, or the strategy needs progress and nobody says what all steps are.
    """
    whole = policy.total_steps if total_steps is None else total_steps
    if step < 0:
        raise InvalidField(f"step = {step} is less than 0", ("step",))
    if whole is None:
        check_total_steps(policy)
        return 0.0
    if whole < 1:
        raise InvalidField(f"total_steps = {whole} is less than 1", ("total_steps",))
    return min(1.0, step / whole)


def check_total_steps(policy: CurriculumPolicy) -> None:
    """Refuse settings whose strategy needs progress, and that do not say what all steps are.

    For settings that somebody makes: every request that leaves ``total_steps`` to them would fail. A saved state is
    taken as it was, since its samples may name them.

    Raises:
        InvalidField: `location` names ``total_steps``.
    """
    if policy.total_steps is None and needs_progress(policy):
        raise InvalidField(f"strategy {policy.strategy} needs total_steps", ("total_steps",))


def needs_progress(policy: CurriculumPolicy) -> bool:
    """Whether the strategy changes with training's progress."""
    return policy.strategy is CurriculumStrategy.EASY_FIRST or (
        policy.strategy is CurriculumStrategy.COMPETENCE_BASED and policy.form is Form.CDF
    )


def _check(policy: CurriculumPolicy, **in_range: bool) -> None:
    for name, fits in in_range.items():
        if not fits:
            raise InvalidField(f"{name} = {getattr(policy, name)} is out of range", (name,))
