"""Convert promised shares to sequences: what an environment must, may and can bring to a batch, and its debt."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import floor

from app.core.model import NO_BOUNDS, Bounds, Lane, LaneId, environment_key
from app.core.numeric import subset_sum
from app.core.numeric.subset_sum import Supply, attainable

_FLOAT_ERROR = 1e-9  # 100 * 0.29 is 28.999999999999996 and means 29

GroupCounts = Mapping[int | None, Mapping[int, int]]
"""Groups by environment and size; environments without bounds are one, None."""


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """The promised and the largest fraction of each batch for an environment, 0 to 1."""

    min_share: float | None = None
    max_share: float | None = None


def bounds_for(batch_size: int, shares: Mapping[int, ShareLimits]) -> dict[int, Bounds]:
    """Turn shares of a batch into sequences of a batch.

    A minimum is ``floor(batch_size * min_share)``, so a share of less than one sequence does not bind. Minimum shares
    that sum to more than one are scaled down in proportion, by largest remainder, so that they fill the batch exactly.
    Ties go to the smaller environment id. A maximum is rounded down, too. A minimum share above its maximum share
    counts as the maximum.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        shares: By environment id, for the live environments; fractions from 0 to 1.

    Returns:
        One entry per key of ``shares``.

    Source: Balinski & Young, *Fair Representation* (1982): Hamilton's method.
    """
    minimums = _minimums(batch_size, {environment: minimum_of(share) for environment, share in shares.items()})
    bounds = {}
    for environment, share in shares.items():
        maximum = None if share.max_share is None else floor(batch_size * share.max_share + _FLOAT_ERROR)
        minimum = minimums[environment] if maximum is None else min(minimums[environment], maximum)
        bounds[environment] = Bounds(minimum, maximum) if minimum or maximum is not None else NO_BOUNDS
    return bounds


def minimum_of(share: ShareLimits) -> float:
    """Return the promised fraction, at most the largest one."""
    minimum = share.min_share or 0.0
    return minimum if share.max_share is None else min(minimum, share.max_share)


def limit_of(environment: int | None, batch_size: int, bounds: Mapping[int, Bounds]) -> int:
    """Return the most sequences of one batch that an environment may have."""
    bound = _bound(environment, bounds)
    return batch_size if bound.maximum is None else min(batch_size, bound.maximum)


def is_oversized(lane: LaneId, batch_size: int, bounds: Mapping[int, Bounds]) -> bool:
    """Return whether groups of an environment and size can never enter a batch under these bounds."""
    environment, size = lane
    return size > limit_of(environment, batch_size, bounds)


def binds(own: Bounds, batch_size: int) -> bool:
    """Return whether the minimum or the maximum of an environment excludes some batches of this size."""
    return own.minimum > 0 or (own.maximum is not None and own.maximum < batch_size)


def bounded_environment(environment: int | None, batch_size: int, bounds: Mapping[int, Bounds]) -> int | None:
    """Return the environment whose bounds apply to a group, or None if it has no bounds that bind."""
    own = None if environment is None else bounds.get(environment)
    return environment if own is not None and binds(own, batch_size) else None


def without_minimums(bounds: Mapping[int, Bounds]) -> dict[int, Bounds]:
    """Return the bounds with all minimums 0."""
    return {environment: Bounds(0, bound.maximum) for environment, bound in bounds.items()}


def supplies_of(batch_size: int, groups: GroupCounts, bounds: Mapping[int, Bounds]) -> list[Supply]:
    """Return what each environment can bring to an empty batch; those with a minimum but no groups are included."""
    bounded = {bounded_environment(environment, batch_size, bounds) for environment in bounds} | {None}
    return [
        Supply(key, 0, _bound(key, bounds).minimum, limit_of(key, batch_size, bounds), groups.get(key, {}))
        for key in sorted(bounded, key=environment_key)
    ]


def unlimited(
    batch_size: int, sizes: Mapping[int | None, Collection[int]], bounds: Mapping[int, Bounds]
) -> GroupCounts:
    """Return as many groups of each known size as a batch can take. Where no size is known, use every size."""
    groups: dict[int | None, dict[int, int]] = {}
    for environment in sizes.keys() | bounds.keys():
        own = groups.setdefault(bounded_environment(environment, batch_size, bounds), {})
        for size in sizes.get(environment) or ((1,) if environment in bounds else ()):
            if size > 0:
                own[size] = batch_size // size
    return groups


def minimums_conflict(
    batch_size: int, sizes: Mapping[int | None, Collection[int]], bounds: Mapping[int, Bounds]
) -> bool:
    """Return whether group sizes make the minimums impossible together, however many groups arrive.

    A shortage is not a conflict. A slow environment, or one whose sizes are unknown, can still deliver.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        sizes: Group sizes each environment is known to send, in sequences.
        bounds: What each environment must and may have.

    Returns:
        True if even an unlimited supply of groups of these sizes has no exact batch that keeps every minimum, while
        without the minimums it has one.
    """
    if all(bound.minimum <= 0 for bound in bounds.values()):
        return False
    supplies = supplies_of(batch_size, unlimited(batch_size, sizes, bounds), bounds)
    return not attainable(batch_size, supplies) and attainable(batch_size, subset_sum.without_minimums(supplies))


def usable_groups(batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> GroupCounts:
    """Return the queued groups that may be part of a batch."""
    groups: dict[int | None, Counter[int]] = {}
    for lane in lanes:
        if not is_oversized(lane.id, batch_size, bounds):
            environment = bounded_environment(lane.environment, batch_size, bounds)
            groups.setdefault(environment, Counter())[lane.size] += lane.queued
    return groups


def settle_debts(
    debts: Mapping[int, int], bounds: Mapping[int, Bounds], got: Mapping[int | None, int]
) -> dict[int, int]:
    """Return what each environment is owed after a batch: ``max(0, debt + minimum - got)`` sequences.

    A debt below 0 is an overpayment: the environment was repaid for a relaxed batch, and that batch was not trained on.
    Later shortfalls are set against it: ``max(min(debt, 0), debt + minimum - got)``.

    Args:
        debts: Sequences owed before the batch, by environment.
        bounds: The bounds that the batch was planned with. An environment without a minimum is owed nothing.
        got: Sequences each environment had in the batch.

    Returns:
        The debts that are not zero.
    """
    after = {}
    for environment, bound in bounds.items():
        if bound.minimum > 0:
            before = debts.get(environment, 0)
            after[environment] = max(min(before, 0), before + bound.minimum - got.get(environment, 0))
    return {environment: debt for environment, debt in after.items() if debt}


def exceeds_one(total: float) -> bool:
    """Return whether minimum shares sum to more than a whole batch, beyond the error of a float."""
    return total > 1 + _FLOAT_ERROR


def debt_changes(before: Mapping[int, int], after: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Return by how much a batch changes the debts to environments, by environment id, without zeros.

    The changes are part of the batch's lease. If the batch is not trained on, they are undone, even if other batches
    were taken after it (`lua/batches/revert_debts.lua`).
    """
    changes = ((key, after.get(key, 0) - before.get(key, 0)) for key in sorted(before.keys() | after.keys()))
    return tuple((key, change) for key, change in changes if change)


def _minimums(batch_size: int, shares: Mapping[int, float]) -> dict[int, int]:
    total = sum(shares.values())
    if not exceeds_one(total):
        return {environment: floor(batch_size * share + _FLOAT_ERROR) for environment, share in shares.items()}
    quotas = {environment: batch_size * share / total for environment, share in shares.items()}
    seats = {environment: floor(quota + _FLOAT_ERROR) for environment, quota in quotas.items()}
    by_remainder = sorted(
        quotas, key=lambda environment: (round(seats[environment] - quotas[environment], 9), environment)
    )
    for environment in by_remainder[: batch_size - sum(seats.values())]:
        seats[environment] += 1
    return seats


def _bound(environment: int | None, bounds: Mapping[int, Bounds]) -> Bounds:
    return NO_BOUNDS if environment is None else bounds.get(environment, NO_BOUNDS)
