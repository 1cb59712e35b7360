"""Filters of a run: which groups it drops on arrival for their rewards, or keeps with a smaller weight."""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from lachesis.wire.body import Body

FilterName = Literal["zero_variance", "reward_range", "pass_rate"]
"""Name of each filter: in receipts, in counts of dropped groups, and after ``filter_`` in the settings."""

LossWeight = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="Null: the filter drops the groups that it finds. A number: it keeps them, and the batch carries "
        "this loss weight for each.",
    ),
]


class ZeroVarianceFilter(Body):
    """Finds groups of several sequences whose rewards are all equal: no sequence has an advantage over another."""

    epsilon: float = Field(
        default=1e-6,
        ge=0,
        le=1,
        description="Largest difference between rewards that count as equal; relative to the largest reward if that "
        "is above 1.",
    )
    loss_weight: LossWeight = None


class _Band(Body):
    """Two bounds. Each may be null, which means no bound."""

    above: float | None
    below: float | None

    @model_validator(mode="after")
    def _is_a_band(self) -> Self:
        if self.above is None and self.below is None:
            raise ValueError("needs a bound: above or below")
        if self.above is not None and self.below is not None and self.above >= self.below:
            raise ValueError(f"nothing is above {self.above:g} and below {self.below:g}")
        return self


class RewardRangeFilter(_Band):
    """Finds groups whose mean reward is not strictly between two bounds."""

    above: float | None = Field(default=None, description="Lower bound of the mean reward. Null: none.")
    below: float | None = Field(default=None, description="Upper bound of the mean reward. Null: none.")
    loss_weight: LossWeight = None


class PassRateFilter(_Band):
    """Finds groups whose pass rate is not strictly between two bounds. By default: all pass, or none passes."""

    threshold: float = Field(default=0.5, description="A sequence passes if its reward is at least this.")
    above: float | None = Field(default=0.0, ge=0, le=1, description="Lower bound of the pass rate. Null: none.")
    below: float | None = Field(default=1.0, ge=0, le=1, description="Upper bound of the pass rate. Null: none.")
    loss_weight: LossWeight = None


class RunFilters(Body):
    """The filters of a run. A change sets a filter as a whole. `app.core.groups.filters` applies them."""

    filter_zero_variance: ZeroVarianceFilter | None = Field(
        default=None, description="Finds groups without reward variance. Null: off."
    )
    filter_reward_range: RewardRangeFilter | None = Field(
        default=None, description="Finds groups by their mean reward. Null: off."
    )
    filter_pass_rate: PassRateFilter | None = Field(
        default=None, description="Finds groups by their pass rate. Null: off."
    )
