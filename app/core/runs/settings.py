"""What a run does with its groups and batches beyond their selection, as its owner set it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class LongSequences(StrEnum):
    """What happens to groups with a sequence that is too long: the request is refused, or the group is dropped."""

    REFUSE = "refuse"
    DROP = "drop"


class FutureVersions(StrEnum):
    """What becomes of groups sampled by a version that is not in force: they count as of the one that is, or go."""

    RESTAMP = "restamp"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class ZeroVariance:
    """A filter of groups whose rewards are all the same; for this and the others see `app.core.groups.filters`."""

    epsilon: float = 1e-6
    loss_weight: float | None = None


@dataclass(frozen=True, slots=True)
class RewardRange:
    """A filter of groups whose mean reward is not between two bounds."""

    above: float | None = None
    below: float | None = None
    loss_weight: float | None = None


@dataclass(frozen=True, slots=True)
class PassRate:
    """A filter of groups of which too few or too many sequences have a reward of at least `threshold`."""

    threshold: float = 0.5
    above: float | None = 0.0
    below: float | None = 1.0
    loss_weight: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What a run does with its groups and batches beyond their selection (`lachesis.wire.runs` explains each).

    The defaults are those of a run that nobody made under ``/v1``: a trainer of Atropos registered, no more.
    """

    max_staleness: int | None = None
    max_age_s: float | None = None
    future_versions: FutureVersions = FutureVersions.RESTAMP
    max_sequence_tokens: int | None = None
    long_sequences: LongSequences = LongSequences.REFUSE
    relax_after_s: float | None = None
    relax_scarce_after_s: float | None = None
    max_queued_groups: int | None = None
    max_queued_bytes: int | None = None
    lease_s: float = 600.0
    max_deliveries: int = 5
    keep_batches: int = 0
    keep_bytes: int = 0
    dedup_window_s: float = 3600.0
    history_retention_s: float = 3600.0
    balance_window: int = 0
    max_delay_batches: int = 2
    filter_zero_variance: ZeroVariance | None = None
    filter_reward_range: RewardRange | None = None
    filter_pass_rate: PassRate | None = None
    alert_after_batches: int | None = 10
    fresh_fraction: float = 1.0
    archived: bool = False

    @property
    def filters_groups(self) -> bool:
        """Whether groups are looked at for their rewards when they come."""
        return bool(self.filter_zero_variance or self.filter_reward_range or self.filter_pass_rate)

    @property
    def history_ms(self) -> int:
        """How long it is remembered what became of the run's groups, milliseconds of run clock."""
        return round(self.history_retention_s * 1000)


_FILTERS: Mapping[str, type[ZeroVariance | RewardRange | PassRate]] = {
    "filter_zero_variance": ZeroVariance,
    "filter_reward_range": RewardRange,
    "filter_pass_rate": PassRate,
}


def fields_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Turn settings as JSON has them, all or some, into values of the fields of `Policy`."""
    values = dict(settings)
    if "long_sequences" in values:
        values["long_sequences"] = LongSequences(values["long_sequences"])
    if "future_versions" in values:
        values["future_versions"] = FutureVersions(values["future_versions"])
    for name, kind in _FILTERS.items():
        if values.get(name) is not None:
            values[name] = kind(**values[name])
    return values
