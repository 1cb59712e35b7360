"""Define the settings of a curriculum, and reject invalid ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.core.bounds import check_bounds
from app.core.errors import InvalidField
from lachesis.wire.curricula import CurriculumSettings

MAX_REWARD = 1e6
"""Largest magnitude of a reward, a prior, or a threshold: the store counts the mean reward of all items in 64 bits."""


class CurriculumStrategy(StrEnum):
    """The rule that chooses the next items. Each strategy has its own file."""

    UNIFORM = "uniform"
    EASY_FIRST = "easy_first"
    COMPETENCE_BASED = "competence_based"
    LEARNABILITY = "learnability"
    THOMPSON = "thompson"
    PLR = "plr"
    DIFFICULTY_POOLS = "difficulty_pools"
    BANDIT = "bandit"


class Form(StrEnum):
    """The form of COMPETENCE_BASED: a share of the easiest items that grows with progress, or bins at the frontier."""

    CDF = "cdf"
    FRONTIER = "frontier"


class Arms(StrEnum):
    """The meaning of an arm of BANDIT."""

    BINS = "bins"
    CATEGORIES = "categories"


@dataclass(frozen=True, slots=True)
class CurriculumPolicy:
    """How a curriculum estimates its items, and chooses among them.

    The fields are those of `lachesis.wire.curricula.CurriculumSettings`, which defines their bounds and meaning. A
    strategy ignores the parameters of the others.
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
    """Return settings, some or all, with text replaced by the member of its enumeration."""
    kinds = {"strategy": CurriculumStrategy, "form": Form, "arms": Arms}
    return dict(settings) | {name: kind(settings[name]) for name, kind in kinds.items() if name in settings}


def check_policy(policy: CurriculumPolicy) -> None:
    """Reject a policy that does not work.

    Raises:
        InvalidField: `location` names the field.
    """
    check_bounds(CurriculumSettings, policy)
    if policy.reward_min >= policy.reward_max:
        raise InvalidField(f"reward_max = {policy.reward_max} is not above reward_min", ("reward_max",))
    if policy.hard_threshold >= policy.easy_threshold:
        raise InvalidField(f"easy_threshold = {policy.easy_threshold} is not above hard_threshold", ("easy_threshold",))
    if not any((policy.hard_weight, policy.normal_weight, policy.easy_weight)):
        raise InvalidField("hard_weight, normal_weight and easy_weight are all 0", ("normal_weight",))


def progress(policy: CurriculumPolicy, step: int, total_steps: int | None = None) -> float:
    """Return how far training has come, 0 to 1: ``step / total_steps``, and 1 beyond.

    Args:
        policy: The settings of the curriculum. Their ``total_steps`` count if the request gives none.
        step: Trainer steps so far, ``>= 0``.
        total_steps: The value of the request, ``>= 1``, or None.

    Returns:
        Progress; 0 if ``total_steps`` is unknown and the strategy does not need progress.

    Raises:
        InvalidField: A number is out of range, or the strategy needs progress and ``total_steps`` is unknown.
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
    """Reject settings without ``total_steps`` if their strategy needs progress.

    This checks new settings: every request without ``total_steps`` would fail. A saved state is not checked, because
    its samples may give ``total_steps`` themselves.

    Raises:
        InvalidField: `location` names ``total_steps``.
    """
    if policy.total_steps is None and needs_progress(policy):
        raise InvalidField(f"strategy {policy.strategy} needs total_steps", ("total_steps",))


def needs_progress(policy: CurriculumPolicy) -> bool:
    """Whether the strategy depends on the progress of training."""
    return policy.strategy is CurriculumStrategy.EASY_FIRST or (
        policy.strategy is CurriculumStrategy.COMPETENCE_BASED and policy.form is Form.CDF
    )
