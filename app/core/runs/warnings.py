"""Warn of settings that cannot work in a run, before a trainer waits for a batch that never comes.

A warning is about a problem that more groups do not solve. `app.core.batches.diagnosis` says why there is no batch now.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from app.core.environments.shares import ShareLimits, exceeds_one, minimum_of
from app.core.model import Naming, by_number, environment_key
from app.core.numeric.subset_sum import ever_reachable
from app.core.runs.settings import sequence_limit
from app.core.runs.view import RunView
from app.core.wording import MOST_NAMED, listed
from lachesis.wire.printable import counted

Sizes = Mapping[int | None, Collection[int]]
"""Sizes of groups, in sequences, that each environment (None: none) declared or has queued."""


class WarningKind(StrEnum):
    """The kind of a problem."""

    GROUPS_TOO_LARGE = "groups_too_large"
    SIZES_DO_NOT_FIT = "sizes_do_not_fit"
    MINIMUMS_ABOVE_ONE = "minimums_above_one"
    SEQUENCES_TOO_LONG = "sequences_too_long"
    NEVER_TAKEN = "never_taken"
    NO_ROOM_BESIDE_MINIMUMS = "no_room_beside_minimums"


@dataclass(frozen=True, slots=True)
class RunWarning:
    """Something that cannot work in a run: a sentence with the values, and the environments it is about."""

    kind: WarningKind
    detail: str
    environments: tuple[int | None, ...] = ()


def warnings_of(view: RunView) -> tuple[RunWarning, ...]:
    """Return the warnings of a run, at most one of each kind.

    Args:
        view: The run.
    """
    if view.config is None:
        return ()
    batch_size, live = view.batch_size, view.live
    maximums = live.maximums(batch_size).items()
    limits = {key: bound.maximum for key, bound in maximums if bound.maximum is not None}
    sizes = _known_sizes(view)
    found = (
        groups_too_large(batch_size, sizes, limits, view.named),
        sizes_do_not_fit(batch_size, sizes, limits) if _sizes_must_fit(view) else None,
        minimums_above_one(live.shares, view.named),
        _sequences_too_long(view),
        never_taken(batch_size, view),
        no_room_beside_minimums(batch_size, view),
    )
    return tuple(warning for warning in found if warning is not None)


def groups_too_large(
    batch_size: int, sizes: Sizes, limits: Mapping[int, int], named: Naming = by_number
) -> RunWarning | None:
    """Warn of groups that are larger than a batch, or than their environment may contribute to one.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        sizes: The known group sizes.
        limits: Most sequences of a batch for each environment with a maximum.
        named: What the sentence calls environments.
    """
    large = {
        key: sorted(size for size in own if size > _limit(key, batch_size, limits))
        for key, own in sizes.items()
        if own and max(own) > _limit(key, batch_size, limits)
    }
    whose = _ordered(large)
    if not whose:
        return None
    which = [
        f"groups {'without an environment' if key is None else f'of {named(key)}'} have {listed(large[key])} "
        f"sequences, more than the {_limit(key, batch_size, limits)} that fit into a batch of {batch_size}"
        for key in whose[: MOST_NAMED + 1]
    ]
    raised = "max_share or batch_size" if limits.keys() & large.keys() else "batch_size"
    detail = f"groups are too large for any batch: {listed(which, '; ')}. Send smaller groups or raise {raised}"
    return RunWarning(WarningKind.GROUPS_TOO_LARGE, detail, whose)


def sizes_do_not_fit(batch_size: int, sizes: Sizes, limits: Mapping[int, int]) -> RunWarning | None:
    """Warn if no groups of these sizes sum to exactly the batch size within the limits, however many arrive.

    Or warn of sizes that are in no such sum: their groups would wait forever. With maximums, it may miss some of them.
    There is no warning if no known size fits into a batch. The arguments are those of `groups_too_large`.
    """
    fitting = {
        key: frozenset(size for size in own if 0 < size <= _limit(key, batch_size, limits))
        for key, own in sizes.items()
    }
    every = frozenset[int]().union(*fitting.values())
    sums = ever_reachable(batch_size, _senders(batch_size, fitting, limits))
    batches_form = bool(sums >> batch_size & 1)
    useless = frozenset(size for size in every if not (batches_form and sums >> (batch_size - size) & 1))
    whose = _ordered(key for key, own in fitting.items() if own & useless)
    if not whose:
        return None
    known = listed(sorted(every))
    if batches_form:
        detail = (
            f"no batch of {batch_size} sequences can contain groups of {listed(sorted(useless))}: the sizes that "
            f"environments declared or sent ({known}) do not sum to the rest. Send other sizes or change batch_size"
        )
        return RunWarning(WarningKind.SIZES_DO_NOT_FIT, detail, whose)
    limited = any(key in limits for key in whose)
    within, change = (" within every max_share", "max_share or batch_size") if limited else ("", "batch_size")
    detail = (
        f"no groups of the sizes that environments declared or sent ({known}) sum to exactly {batch_size} sequences"
        f"{within}, however many arrive. Send other sizes or change {change}"
    )
    return RunWarning(WarningKind.SIZES_DO_NOT_FIT, detail, whose)


def _senders(
    batch_size: int, sizes: Mapping[int | None, frozenset[int]], limits: Mapping[int, int]
) -> Counter[tuple[int, frozenset[int]]]:
    """Count environments by the most sequences that one may contribute to a batch, and by the sizes of its groups.

    All without a limit are one sender: any number of groups of their sizes may be in a batch.
    """
    senders = Counter((_limit(key, batch_size, limits), own) for key, own in sizes.items() if own and key in limits)
    free = frozenset[int]().union(*(own for key, own in sizes.items() if key not in limits))
    if free:
        senders[batch_size, free] = 1
    return senders


def minimums_above_one(shares: Mapping[int, ShareLimits], named: Naming = by_number) -> RunWarning | None:
    """Warn of minimum shares that sum to more than a whole batch."""
    minimums = {key: minimum for key, share in shares.items() if (minimum := minimum_of(share)) > 0}
    total = sum(minimums.values())
    if not exceeds_one(total):
        return None
    which = listed([f"{named(key)} {share:g}" for key, share in sorted(minimums.items())])
    detail = f"minimum shares sum to {total:.4g}, more than 1: {which}. They are scaled down in proportion; lower some"
    return RunWarning(WarningKind.MINIMUMS_ABOVE_ONE, detail, tuple(sorted(minimums)))


def _sequences_too_long(view: RunView) -> RunWarning | None:
    counts = {key: count for (reason, key), count in view.dropped.items() if reason == "too_long" and count}
    limit = sequence_limit(view.config, view.policy)
    if not counts or limit is None:
        return None
    detail = (
        f"{sum(counts.values())} groups were dropped because a sequence has more than {limit} tokens "
        "(max_sequence_tokens, or max_token_len of Atropos). Send shorter sequences or raise the limit"
    )
    return RunWarning(WarningKind.SEQUENCES_TOO_LONG, detail, _ordered(counts))


def never_taken(batch_size: int, view: RunView) -> RunWarning | None:
    """Warn of environments without a sequence in any batch, after groups for a whole batch became too old in the queue.

    An environment without a minimum share starves if batches of the groups of others are always complete first.
    So batches must have formed since it joined. Groups that were too old on arrival never waited, so they do not count.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        view: The run.
    """
    waiting = Counter[int | None]()
    for (owner, size), groups in (*view.lanes.items(), *view.buffers.items()):
        waiting[owner] += size * groups
    too_old = dict[int, int]()
    for key, one in view.live.records.items():
        if view.served.get(key) or view.last_batch_ms is None or view.last_batch_ms < one.registered_ms:
            continue
        gone = view.sent[key].sequences - waiting[key] if key in view.sent else 0
        dropped = sum(view.dropped.get((reason, key), 0) for reason in ("stale", "expired"))
        groups = min(dropped, gone // max(1, one.group_size))
        if groups * one.group_size >= batch_size:
            too_old[key] = groups
    if not too_old:
        return None
    which = listed([f"{groups} groups of {view.named(key)}" for key, groups in sorted(too_old.items())])
    detail = (
        f"no batch ever took a group of these environments, and their groups became too old: {which}. "
        "Give them a min_share, send groups of other sizes, or raise max_staleness or max_age_s"
    )
    return RunWarning(WarningKind.NEVER_TAKEN, detail, tuple(sorted(too_old)))


def no_room_beside_minimums(batch_size: int, view: RunView) -> RunWarning | None:
    """Warn of queued groups that fit into a batch, and do not fit beside the minimums of live environments.

    Most are of an environment that has left. They wait as long as these minimums count. A batch with replayed groups
    has other minimums of its fresh part, so there is no warning.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        view: The run.
    """
    if view.policy.fresh_fraction < 1:
        return None
    promised = {key: bound.minimum for key, bound in view.bounds.items() if bound.minimum}
    room, waiting = batch_size - sum(promised.values()), Counter[int | None]()
    for (key, size), groups in view.fitting_lanes.items():
        if size > room and key not in promised:
            waiting[key] += groups
    if not waiting:
        return None
    which = [
        f"{counted(waiting[key], 'group')} {'without an environment' if key is None else f'of {view.named(key)}'}"
        for key in _ordered(waiting)
    ]
    detail = (
        f"the minimum shares of live environments leave {room} of {counted(batch_size, 'sequence')} in a batch, so "
        f"these groups wait: {listed(which)}. Lower a min_share, or delete these groups"
    )
    return RunWarning(WarningKind.NO_ROOM_BESIDE_MINIMUMS, detail, _ordered(waiting))


def _sizes_must_fit(view: RunView) -> bool:
    """Return whether batches need groups of sizes that are known by now.

    Before the first group, other environments may still be about to join. A replay buffer fills batches up.
    """
    return view.totals.accepted_groups > 0 and view.policy.fresh_fraction >= 1


def _known_sizes(view: RunView) -> dict[int | None, set[int]]:
    sizes: defaultdict[int | None, set[int]] = defaultdict(set)
    for environment, size in view.lanes:
        sizes[environment].add(size)
    for key, registered in view.live.records.items():
        sizes[key].add(registered.group_size)
    return dict(sizes)


def _limit(environment: int | None, batch_size: int, limits: Mapping[int, int]) -> int:
    return batch_size if environment is None else min(batch_size, limits.get(environment, batch_size))


def _ordered(environments: Iterable[int | None]) -> tuple[int | None, ...]:
    return tuple(sorted(environments, key=environment_key))
