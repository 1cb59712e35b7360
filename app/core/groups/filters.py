"""Drop arriving groups whose rewards teach nothing, or keep them with a weight.

If all rewards of a group are the same, every advantage over the group's mean is zero (GRPO, RLOO), and the group takes
room in a batch without teaching anything. DAPO's dynamic sampling leaves such groups out and samples others until the
batch is full. Here they are never queued, so that batches stay exact. There are three filters, and each may be off:

    zero_variance  all rewards are equal within epsilon
    reward_range   the mean reward is not strictly between two bounds
    pass_rate      the fraction of sequences that pass is not strictly between two bounds

Rewards that should be equal often differ by rounding: a mean of f32 noise is not 1.0, and its standard deviation is not
0.0. So differences up to epsilon (`ROUNDING` for the bounds) do not count. For values above 1 they are relative. The
test for equality covers the whole group. A test of each sequence's peers alone, as leave-one-out baselines see them,
would be wrong. If one sequence fails, its peers are all equal, and still the group is full of signal.

Source: Yu et al., *DAPO: An Open-Source LLM Reinforcement Learning System at Scale* (2025), section 3.2.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from app.core.model import Naming, NotReady
from app.core.runs.settings import Policy, settings_to_change
from app.core.wording import listed
from lachesis.wire.filters import PassRateFilter, RewardRangeFilter
from lachesis.wire.states import FilterName

ROUNDING = 1e-6
"""The largest rounding error of a reward or of a mean of rewards. Relative to values above 1."""


@dataclass(frozen=True, slots=True)
class FilterMark:
    """The mark of a filtered group that the run keeps: the filter, and the weight for its loss."""

    filtered_by: FilterName
    loss_weight: float


class FilteredGroup(Protocol):
    """The values of a group that filters may look at: one or more sequences, each with a reward and a length."""

    @property
    def rewards(self) -> NDArray[Any]:
        """Return the rewards, finite, one per sequence."""
        ...

    @property
    def lengths(self) -> NDArray[Any]:
        """Return the tokens of each sequence."""
        ...


def apply_filters(group: FilteredGroup, policy: Policy) -> FilterName | FilterMark | None:
    """Return whether the filters of a run drop or mark a group.

    Args:
        group: A group that arrives.
        policy: What the run does with groups.

    Returns:
        The filter that drops it. If none drops it: the mark of the filter with the smallest weight. None if it passes
        all filters. Between equal filters the first in the order of `lachesis.wire.states.FILTERS` wins.
    """
    marks = []
    for reason, loss_weight in _failed(group, policy):
        if loss_weight is None:
            return reason
        marks.append(FilterMark(reason, loss_weight))
    return min(marks, key=lambda mark: mark.loss_weight, default=None)


def are_equal(rewards: Sequence[float], epsilon: float) -> bool:
    """Return whether a group's rewards are all the same within ``epsilon``. False for a single reward.

    Args:
        rewards: One per sequence, finite.
        epsilon: Largest difference that does not count, ``>= 0``. Relative to the largest |reward| if that is above 1.
    """
    least, most = min(rewards), max(rewards)
    return len(rewards) > 1 and most - least <= epsilon * max(1.0, -least, most)


def pass_rate(rewards: Sequence[float], threshold: float) -> float:
    """Return the fraction of rewards that are at least ``threshold``, up to rounding."""
    enough = threshold - _rounding(threshold)
    return sum(reward >= enough for reward in rewards) / len(rewards)


def _failed(group: FilteredGroup, policy: Policy) -> Iterator[tuple[FilterName, float | None]]:
    """Yield the filters that a group fails, each with the weight that would keep the group."""
    rewards: list[float] = group.rewards.tolist()
    variance, means, rates = policy.filter_zero_variance, policy.filter_reward_range, policy.filter_pass_rate
    if variance is not None and are_equal(rewards, variance.epsilon):
        yield "zero_variance", variance.loss_weight
    if means is not None and not _within(sum(reward / len(rewards) for reward in rewards), means):
        yield "reward_range", means.loss_weight
    if rates is not None and not _within(pass_rate(rewards, rates.threshold), rates):
        yield "pass_rate", rates.loss_weight


def _within(value: float, band: RewardRangeFilter | PassRateFilter) -> bool:
    """Return whether a value is strictly between two bounds, further from each than the largest rounding error.

    The error is relative to the bound. A mean near 0 of rewards in the thousands may have a larger error.
    """
    above = band.above is None or value > band.above + _rounding(band.above)
    return above and (band.below is None or value < band.below - _rounding(band.below))


def _rounding(value: float) -> float:
    return ROUNDING * max(1.0, abs(value))


@dataclass(frozen=True, slots=True)
class Arrived:
    """The number of groups that arrived, and of those that filters dropped: by filter, and by environment or None."""

    groups: int = 0
    filtered: Mapping[str, int] = field(default_factory=dict)
    filtered_of: Mapping[int | None, int] = field(default_factory=dict)

    def __str__(self) -> str:
        total = sum(self.filtered.values())
        whose = ", ".join(f"{reason} {groups}" for reason, groups in self.filtered.items())
        return f"filters dropped {total} of the last {self.groups} groups ({100 * total / self.groups:.0f} %): {whose}"


def arrived_since(before: Arrived, now: Arrived) -> Arrived:
    """Return the groups that arrived between two counts of a run; none if the run was reset in between."""
    filtered = {reason: count - before.filtered.get(reason, 0) for reason, count in now.filtered.items()}
    if now.groups < before.groups or min(filtered.values(), default=0) < 0:
        return Arrived()
    of = {key: count - before.filtered_of.get(key, 0) for key, count in now.filtered_of.items()}
    groups, lately = now.groups - before.groups, {reason: count for reason, count in filtered.items() if count}
    return Arrived(groups, lately, {key: count for key, count in of.items() if count > 0})


def with_filtered(why: NotReady, arrived: Arrived, policy: Policy, named: Naming) -> NotReady:
    """Add how many of the latest groups filters dropped, and how many of them of environments that batches wait for.

    Args:
        why: Why there is no batch.
        arrived: The latest groups.
        policy: What the run does with groups.
        named: What the sentence calls environments.
    """
    if not arrived.filtered:
        return why
    lacking = {key: arrived.filtered_of[key] for key in why.missing_by_environment if key in arrived.filtered_of}
    if not lacking:
        return why.adding(str(arrived))
    whose = listed([f"{groups} of {named(key)}" for key, groups in lacking.items()])
    return why.adding(f"{arrived}. Of these, {whose}: change {settings_to_change(arrived.filtered, policy)}")
