"""Settings by name, as the models describe them. `make sync` writes this module from the models."""

from typing import Any, Literal, TypedDict

from lachesis.wire.filters import PassRateFilter, RewardRangeFilter, ZeroVarianceFilter
from lachesis.wire.replay import RateLimiter, Sampling
from lachesis.wire.runs import AtroposSettings


class NewRun(TypedDict, total=False):
    """Settings of a run that can be given when it is made, as `lachesis.wire.runs.RunCreate` describes them."""

    max_requests_per_s: float | None
    max_bytes_per_s: float | None
    max_groups_per_s: float | None
    max_connections: int | None
    filter_zero_variance: ZeroVarianceFilter | None
    filter_reward_range: RewardRangeFilter | None
    filter_pass_rate: PassRateFilter | None
    max_staleness: int | None
    max_age_s: float | None
    future_versions: Literal["restamp", "refuse"]
    max_sequence_tokens: int | None
    long_sequences: Literal["refuse", "drop"]
    relax_after_s: float | None
    relax_scarce_after_s: float | None
    max_queued_groups: int | None
    max_queued_bytes: int | None
    lease_s: float
    max_deliveries: int
    keep_batches: int
    keep_bytes: int
    dedup_window_s: float
    history_retention_s: float
    balance_window: int
    max_delay_batches: int
    alert_after_batches: int | None
    fresh_fraction: float
    cost_per_million_tokens: float | None
    intake_paused: bool
    serving_paused: bool
    archived: bool
    atropos: AtroposSettings


class RunChanges(TypedDict, total=False):
    """Settings of a run that can be changed while it runs, as `lachesis.wire.runs.RunChange` describes them."""

    max_requests_per_s: float | None
    max_bytes_per_s: float | None
    max_groups_per_s: float | None
    max_connections: int | None
    filter_zero_variance: ZeroVarianceFilter | None
    filter_reward_range: RewardRangeFilter | None
    filter_pass_rate: PassRateFilter | None
    max_staleness: int | None
    max_age_s: float | None
    future_versions: Literal["restamp", "refuse"]
    max_sequence_tokens: int | None
    long_sequences: Literal["refuse", "drop"]
    relax_after_s: float | None
    relax_scarce_after_s: float | None
    max_queued_groups: int | None
    max_queued_bytes: int | None
    lease_s: float
    max_deliveries: int
    keep_batches: int
    keep_bytes: int
    dedup_window_s: float
    history_retention_s: float
    balance_window: int
    max_delay_batches: int
    alert_after_batches: int | None
    fresh_fraction: float
    cost_per_million_tokens: float | None
    intake_paused: bool
    serving_paused: bool
    archived: bool
    batch_size: int


class ReplayOptions(TypedDict, total=False):
    """Settings of a replay buffer, as `lachesis.wire.replay.ReplaySettings` describes them."""

    fragments_per_chunk: int
    groups: bool
    max_chunks: int
    max_bytes: int | None
    eviction: Literal["oldest", "most_used", "lowest_priority"]
    max_staleness: int | None
    max_age_s: float | None
    max_reuse: int | None
    sampling: Sampling
    limiter: RateLimiter | None
    min_size_to_sample: int
    reorder_window_s: float
    max_waiting: int
    fragment_ttl_s: float
    seed: int
    keep_snapshots: int


class CurriculumOptions(TypedDict, total=False):
    """Settings of a curriculum, as `lachesis.wire.curricula.CurriculumSettings` describes them."""

    strategy: Literal[
        "uniform", "easy_first", "competence_based", "learnability", "thompson", "plr", "difficulty_pools", "bandit"
    ]
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
    """Settings of an item, as `lachesis.wire.curriculum_items.ItemChange` describes them."""

    category: str | None
    prior: float | None
    metadata: dict[str, Any] | None


class HowSampled(TypedDict, total=False):
    """Settings of a sample of items, as `lachesis.wire.curriculum_items.SampleItems` describes them."""

    step: int | None
    total_steps: int | None
    seed: int | None
    strategy: (
        Literal[
            "uniform", "easy_first", "competence_based", "learnability", "thompson", "plr", "difficulty_pools", "bandit"
        ]
        | None
    )


class CriteriaOptions(TypedDict, total=False):
    """Criteria of groups, as `lachesis.wire.criteria.GroupCriteria` describes them."""

    state: Literal["queued", "buffered", "leased", "kept", "delivered", "dropped"] | None
    environment: int | str | None
    size: int | None
    item: str | None
    score_min: float | None
    score_max: float | None
    received_from_s: float | None
    received_to_s: float | None
    step_min: int | None
    step_max: int | None
    staleness_min: int | None
    older_than_version: int | None
    dropped: (
        Literal[
            "payload_lost",
            "corrupt",
            "stale",
            "future_version",
            "expired",
            "quarantined",
            "deleted",
            "too_long",
            "zero_variance",
            "reward_range",
            "pass_rate",
        ]
        | None
    )


class HowDrawn(TypedDict, total=False):
    """Settings of a sample, as `lachesis.wire.samples.TakeSample` describes them."""

    strategy: Literal["uniform", "fifo", "lifo", "proportional", "rank", "recency", "staleness"] | None
    alpha: float | None
    beta: float | None
    half_life_chunks: float | None
    lease_s: float | None
