"""Filters of a run: which groups it drops on arrival for their rewards, or keeps with a weight."""

from typing import Annotated

from pydantic import Field, model_validator
from typing_extensions import Self

from lachesis.wire.body import Body

LossWeight = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="Null: groups that it finds are dropped. Else they are kept, and the batch gives this weight with "
        "each, for its loss.",
    ),
]


class ZeroVarianceFilter(Body):
    """Finds groups of several sequences whose rewards are all the same: they have no advantage to learn from."""

    epsilon: float = Field(
        default=1e-6,
        ge=0,
        le=1,
        description="Rewards that differ by no more count as the same; relative to the largest, where that is above 1.",
    )
    loss_weight: LossWeight = None


class _Band(Body):
    """Two bounds; each may be null, which is none."""

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

    above: float | None = Field(default=None, description="The mean is to be more than this. Null: any.")
    below: float | None = Field(default=None, description="The mean is to be less than this. Null: any.")
    loss_weight: LossWeight = None


class PassRateFilter(_Band):
    """Finds groups whose pass rate is not strictly between two bounds; by default, those that all pass or all fail."""

    threshold: float = Field(default=0.5, description="A sequence passes with at least this reward.")
    above: float | None = Field(
        default=0.0, ge=0, le=1, description="More than this fraction of its sequences is to pass. Null: any."
    )
    below: float | None = Field(
        default=1.0, ge=0, le=1, description="Less than this fraction of its sequences is to pass. Null: any."
    )
    loss_weight: LossWeight = None
