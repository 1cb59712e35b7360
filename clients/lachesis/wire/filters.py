"""Filters of a run: which groups it drops on arrival for their rewards, or keeps with a smaller weight."""

from typing import Annotated

from pydantic import Field, model_validator
from typing_extensions import Self

from lachesis.wire.body import Body

LossWeight = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="What happens to a group that the filter finds. Null means that the run drops the group. A number "
        "means that the run keeps the group, and its batch carries the number as the loss weight of the group.",
    ),
]


class ZeroVarianceFilter(Body):
    """Finds groups of several sequences whose rewards are all equal: no sequence has an advantage over another."""

    epsilon: float = Field(
        default=1e-6,
        ge=0,
        le=1,
        description="Maximum difference between rewards that count as equal. The difference is relative to the largest "
        "reward if the largest reward is above 1.",
    )
    loss_weight: LossWeight = None


class _Band(Body):
    """Two bounds. Null means no bound."""

    above: float | None
    below: float | None

    @model_validator(mode="after")
    def _is_a_band(self) -> Self:
        if self.above is None and self.below is None:
            raise ValueError("needs a bound: above or below")
        if self.above is not None and self.below is not None and self.above >= self.below:
            raise ValueError(f"nothing is above {self.above:g} and below {self.below:g}: make above the smaller one")
        return self


class RewardRangeFilter(_Band):
    """Finds groups whose mean reward is at or below `above`, or at or above `below`."""

    above: float | None = Field(default=None, description="Lower bound of the mean reward. Null means no bound.")
    below: float | None = Field(default=None, description="Upper bound of the mean reward. Null means no bound.")
    loss_weight: LossWeight = None


class PassRateFilter(_Band):
    """Finds groups whose pass rate is at or below `above`, or at or above `below`. By default: pass rates 0 and 1."""

    threshold: float = Field(default=0.5, description="Minimum reward of a sequence that passes.")
    above: float | None = Field(
        default=0.0, ge=0, le=1, description="Lower bound of the pass rate. Null means no bound."
    )
    below: float | None = Field(
        default=1.0, ge=0, le=1, description="Upper bound of the pass rate. Null means no bound."
    )
    loss_weight: LossWeight = None


class RunFilters(Body):
    """The filters of a run. A change replaces a whole filter. `app.core.groups.filters` applies the filters."""

    filter_zero_variance: ZeroVarianceFilter | None = Field(
        default=None, description="Finds groups without reward variance. Null means off."
    )
    filter_reward_range: RewardRangeFilter | None = Field(
        default=None, description="Finds groups by their mean reward. Null means off."
    )
    filter_pass_rate: PassRateFilter | None = Field(
        default=None, description="Finds groups by their pass rate. Null means off."
    )
