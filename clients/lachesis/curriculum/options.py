"""Keyword arguments of the methods of curricula."""

from typing import Any, Literal, TypedDict

from lachesis.wire.curricula import StrategyName

SortedBy = Literal["mean_reward", "posterior", "signal", "last", "drawn"]


class CurriculumOptions(TypedDict, total=False):
    """Settings of a curriculum, as `lachesis.wire.curricula.CurriculumSettings` describes them."""

    strategy: StrategyName
    n_bins: int
    temperature: float
    ema_alpha: float
    competence_threshold: float
    total_steps: int | None
    in_flight_ttl_s: float
    reward_min: float
    reward_max: float
    forgetting: float
    prior_weight: float
    seed: int
    form: Literal["cdf", "frontier"]
    initial_competence: float
    frontier_width: float
    target_pass_rate: float
    candidates: int
    score_temperature: float
    staleness_share: float
    unseen_share: float
    hard_threshold: float
    easy_threshold: float
    hard_weight: float
    normal_weight: float
    easy_weight: float
    arms: Literal["bins", "categories"]
    arm_alpha: float


class ItemOptions(TypedDict, total=False):
    """What an item is registered with beside its key."""

    category: str | None
    prior: float | None
    metadata: dict[str, Any] | None


class HowSampled(TypedDict, total=False):
    """How items are chosen, if not by the settings of the curriculum."""

    step: int
    total_steps: int | None
    strategy: StrategyName | None
    seed: int | None
