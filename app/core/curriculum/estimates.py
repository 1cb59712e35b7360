"""Estimate items from the rewards of their groups.

Each number is a leaky sum: ``x <- keep * x + gain``. An observation determines keep and gain without reading the item.
So the store only applies the updates: once each, in the order in which observations came.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lachesis.wire.curricula import MAX_REWARD, CurriculumSettings
from lachesis.wire.errors import InvalidField


@dataclass(frozen=True, slots=True)
class Estimate:
    """An item, as far as strategies need to know it.

    Attributes:
        ema: Moving average of the mean rewards of its groups. Of an unseen item its prior, or 0.
        count: Observations so far. An item with at least one is seen.
        passed: Rewards that were passes. Older ones count less.
        failed: Rewards that were failures. Older ones count less.
        signal: Mean ``|reward - mean reward|`` of the last group.
        last: Mean reward of the last group.
        drawn: The number of the sample that last handed it out, from 1; 0 if none did.
        prior: The mean reward it was registered with, or None.
    """

    ema: float = 0.0
    count: int = 0
    passed: float = 0.0
    failed: float = 0.0
    signal: float = 0.0
    last: float = 0.0
    drawn: int = 0
    prior: float | None = None


class LeakyUpdate(NamedTuple):
    """The update of one number: ``first`` at the first observation, else ``keep * number + gain``."""

    keep: float
    gain: float
    first: float


class EstimateUpdate(NamedTuple):
    """The update of an estimate by one observation; ``count`` grows by one. The fields are those of `Estimate`."""

    ema: LeakyUpdate
    passed: LeakyUpdate
    failed: LeakyUpdate
    signal: LeakyUpdate
    last: LeakyUpdate


class Posterior(NamedTuple):
    """The Beta distribution of an item's pass rate."""

    alpha: float
    beta: float

    @property
    def mean(self) -> float:
        """Return the mean."""
        return self.alpha / (self.alpha + self.beta)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the posteriors of several items are computed from: arrays of one length.

    Attributes:
        passed: As of `Estimate`.
        failed: As of `Estimate`.
        prior: The prior of an unseen item. NaN for an item without one, and for a seen item.
    """

    passed: NDArray[np.float64]
    failed: NDArray[np.float64]
    prior: NDArray[np.float64]

    @classmethod
    def of(cls, estimates: Sequence[Estimate]) -> "Evidence":
        """Return the evidence of these estimates."""
        priors = [math.nan if one.count or one.prior is None else one.prior for one in estimates]
        passed, failed = [one.passed for one in estimates], [one.failed for one in estimates]
        return cls(np.array(passed, np.float64), np.array(failed, np.float64), np.array(priors, np.float64))


def observed(settings: CurriculumSettings, rewards: ArrayLike) -> EstimateUpdate:
    """Return how the rewards of one group update its item. Every group counts as its mean reward, at any size.

    Raises:
        InvalidField: There is no reward, or one is not finite, or too large; `location` is ``("rewards", position)``.
    """
    values = np.asarray(rewards, np.float64)
    if not values.size:
        raise InvalidField("is empty: an observation has at least one", ("rewards",))
    wrong = ~(np.abs(values) <= MAX_REWARD)
    if wrong.any():
        place = int(wrong.argmax())
        why = f"is {values[place]}, not a number from {-MAX_REWARD:g} to {MAX_REWARD:g}"
        raise InvalidField(why, ("rewards", place))
    mean = _mean(values)
    signal = _mean(np.abs(values - mean))
    passed = float(_pass_shares(settings, values).sum())
    failed = values.size - passed
    remembered = 1 - settings.forgetting
    return EstimateUpdate(
        ema=LeakyUpdate(1 - settings.ema_alpha, settings.ema_alpha * mean, mean),
        passed=LeakyUpdate(remembered, passed, passed),
        failed=LeakyUpdate(remembered, failed, failed),
        signal=LeakyUpdate(0.0, signal, signal),
        last=LeakyUpdate(0.0, mean, mean),
    )


def unseen(prior: float | None = None) -> Estimate:
    """Return the estimate of an item that is registered, with or without a prior.

    Raises:
        InvalidField: The prior is not finite, or beyond `MAX_REWARD`.
    """
    if prior is not None and not abs(prior) <= MAX_REWARD:
        raise InvalidField(f"is {prior}, not a number from {-MAX_REWARD:g} to {MAX_REWARD:g}", ("prior",))
    return Estimate(ema=prior or 0.0, prior=prior)


def posterior(settings: CurriculumSettings, estimate: Estimate) -> Posterior:
    """Return the posterior of an item's pass rate, from Beta(1, 1). A prior counts until the first observation."""
    passed, failed = estimate.passed, estimate.failed
    if estimate.count == 0 and estimate.prior is not None:
        passed, failed = map(float, _evidence_of_prior(settings, np.float64(estimate.prior)))
    return Posterior(1 + passed, 1 + failed)


def posteriors(settings: CurriculumSettings, evidence: Evidence) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the two parameters of the posterior of each item, as `posterior` does."""
    passed, failed = _evidence_of_prior(settings, evidence.prior)
    by_prior = ~np.isnan(evidence.prior)
    return 1 + np.where(by_prior, passed, evidence.passed), 1 + np.where(by_prior, failed, evidence.failed)


def pass_share(settings: CurriculumSettings, reward: float) -> float:
    """Return the share of a reward that counts as a pass, 0 to 1."""
    return float(_pass_shares(settings, np.float64(reward)))


def _evidence_of_prior(
    settings: CurriculumSettings, prior: NDArray[np.float64] | np.float64
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the passes and the failures that a prior counts as."""
    shares = _pass_shares(settings, prior)
    return shares * settings.prior_weight, (1 - shares) * settings.prior_weight


def _pass_shares(settings: CurriculumSettings, rewards: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    return np.clip((rewards - settings.reward_min) / (settings.reward_max - settings.reward_min), 0.0, 1.0)


def _mean(numbers: NDArray[np.float64]) -> float:
    """Return the mean, clamped to the range of the numbers because rounding could leave it."""
    return float(min(max(numbers.mean(), numbers.min()), numbers.max()))
