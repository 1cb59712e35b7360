"""Explain why there is no batch, and what would help."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from app.core.environments.live import known_sizes
from app.core.environments.shares import (
    bounded_environment,
    is_oversized,
    minimums_conflict,
    supplies_of,
    usable_groups,
)
from app.core.model import MOST_HINTS, Bounds, Lane, Naming, NotReady, by_number, environment_key, environment_of
from app.core.numeric.subset_sum import Supply, attainable, fewest_missing
from app.core.ranks.sharding import Undivided
from app.core.runs.view import QueueView
from app.core.wording import listed
from lachesis.wire.blockers import Blocker
from lachesis.wire.printable import counted

_MOST_TRIED = 64
_ABOUT_QUEUE = frozenset(
    {Blocker.TOO_FEW_SEQUENCES, Blocker.MINIMUM_SHORT, Blocker.MINIMUMS_CONFLICT, Blocker.NO_EXACT_FIT}
)


def is_about_queue(not_ready: NotReady) -> bool:
    """Return whether the queue holds no exact batch. Other reasons are about the run."""
    return not_ready.blocker in _ABOUT_QUEUE


def is_about_old_groups(not_ready: NotReady) -> bool:
    """Return whether groups were dropped because they may not be trained on. The next groups may make a batch."""
    return not_ready.blocker is Blocker.OLD_GROUPS


def refusal_of(view: QueueView) -> NotReady | None:
    """Return why the run begins no batch, whatever is queued; None if it may begin one.

    This is about batches that no trainer holds. A trainer gets the batch that it holds again also while serving is
    paused.
    """
    if view.config is None:
        why = "the run has no settings yet: no trainer has registered with it or created it"
        return NotReady(Blocker.NOT_REGISTERED, why)
    if view.policy.archived:
        why = "the run is archived: it hands out no batches until `archived` is false again"
        return NotReady(Blocker.ARCHIVED, why)
    if view.policy.serving_paused:
        why = "an operator has paused serving, so the run hands out no batches"
        return NotReady(Blocker.SERVING_PAUSED, why)
    return None


def old_groups() -> NotReady:
    """Return the reason while the run drops the oldest groups of the queue, which may not be trained on any more."""
    why = (
        "the oldest groups of the queue are too old to be trained on, or of a later policy version; the service drops "
        "them and looks at the next"
    )
    return NotReady(Blocker.OLD_GROUPS, why)


def undivided(last: Undivided | None, batch_id: str | None, group_ids: Collection[str]) -> NotReady | None:
    """Return why ranks that repeat their last request do not get a batch; None if they may get it.

    Args:
        last: Why they did not get the last batch they asked for. None if they got it.
        batch_id: The batch that is handed out again next. None if the next one is new.
        group_ids: The groups of the next batch, if it is new.
    """
    if last is None or last.batch_id != batch_id or (batch_id is None and last.group_id not in group_ids):
        return None
    return NotReady(Blocker.CANNOT_BE_DIVIDED, last.detail)


def explain(
    batch_size: int,
    lanes: Sequence[Lane],
    bounds: Mapping[int, Bounds],
    sizes: Mapping[int | None, Collection[int]],
    named: Naming = by_number,
) -> NotReady:
    """Return why the queue holds no exact batch. The caller has checked that it holds none.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        lanes: The queue; only counts are read.
        bounds: What each environment must and may have.
        sizes: Group sizes that environments declared, in addition to those in the queue.
        named: What the sentence calls environments.
    """
    groups = usable_groups(batch_size, lanes, bounds)
    supplies = supplies_of(batch_size, groups, bounds)
    usable = sum(min(supply.available, supply.maximum) for supply in supplies)
    short = {
        supply.environment: supply.minimum - supply.available
        for supply in supplies
        if supply.environment is not None and supply.available < supply.minimum
    }
    known = known_sizes(lanes, sizes)
    blocker = _blocker(batch_size, usable, short, known, bounds)
    detail = _detail(blocker, batch_size, usable, short, supplies, named)
    hints = _unblocked_by(batch_size, supplies, known, bounds)
    oversized = _oversized(batch_size, lanes, bounds)
    missing = fewest_missing(batch_size, supplies)
    full = frozenset(
        one.environment for one in supplies if one.environment is not None and one.available >= one.maximum
    )
    return NotReady(blocker, detail + _oversized_clause(oversized, named), missing, short, oversized, hints, full)


def _oversized(batch_size: int, lanes: Sequence[Lane], bounds: Mapping[int, Bounds]) -> dict[int | None, int]:
    oversized: Counter[int | None] = Counter()
    for lane in lanes:
        if is_oversized(lane.id, batch_size, bounds):
            oversized[lane.environment] += lane.queued
    return dict(oversized)


def _blocker(
    batch_size: int,
    usable: int,
    short: Mapping[int, int],
    known: Mapping[int | None, Collection[int]],
    bounds: Mapping[int, Bounds],
) -> Blocker:
    if usable < batch_size:
        return Blocker.TOO_FEW_SEQUENCES
    if short:
        return Blocker.MINIMUM_SHORT
    if minimums_conflict(batch_size, known, bounds):
        return Blocker.MINIMUMS_CONFLICT
    return Blocker.NO_EXACT_FIT


def _detail(
    blocker: Blocker,
    batch_size: int,
    usable: int,
    short: Mapping[int, int],
    supplies: Sequence[Supply],
    named: Naming,
) -> str:
    needs = {one.environment: one for one in supplies if one.environment is not None and one.minimum > 0}
    shortages = listed(
        [
            f"{named(environment)} needs {needs[environment].minimum} of {batch_size} sequences, "
            f"has {needs[environment].available} queued"
            for environment in short
        ],
        "; ",
    )
    if blocker is Blocker.TOO_FEW_SEQUENCES:
        wanted = counted(batch_size, "sequence")
        return f"a batch needs {wanted}; the queue has {usable} that fit" + (shortages and f"; {shortages}")
    if blocker is Blocker.MINIMUM_SHORT:
        return shortages
    promised = listed([f"{named(environment)} at least {supply.minimum}" for environment, supply in needs.items()])
    if blocker is Blocker.MINIMUMS_CONFLICT:
        return f"group sizes make the minimums impossible together in a batch of {batch_size}: {promised}"
    if blocker is Blocker.NO_EXACT_FIT:
        kept = f" with {promised}" if promised else ""
        sizes = ", ".join(map(str, sorted({size for supply in supplies for size in supply.counts})))
        queued = sum(supply.available for supply in supplies)
        return f"{queued} usable sequences are queued, but no groups of sizes {sizes} sum to exactly {batch_size}{kept}"
    raise AssertionError(f"the queue alone does not cause {blocker}")


def _oversized_clause(oversized: Mapping[int | None, int], named: Naming) -> str:
    whose = listed(
        [
            f"{count} of {'no environment' if environment is None else named(environment)}"
            for environment, count in oversized.items()
        ]
    )
    return whose and f"; groups too large for any batch: {whose}"


def _unblocked_by(
    batch_size: int,
    supplies: Sequence[Supply],
    known: Mapping[int | None, Collection[int]],
    bounds: Mapping[int, Bounds],
) -> tuple[tuple[int | None, int], ...]:
    """Return single groups that would let a batch form, smallest first, at most `MOST_HINTS`.

    Only the `_MOST_TRIED` smallest are tried. Each try costs as much as a search, and workers may send many sizes.
    """
    candidates = sorted(
        (size, environment_key(environment)) for environment, own in known.items() for size in own if size > 0
    )
    helps: dict[tuple[int | None, int], bool] = {}
    found: list[tuple[int | None, int]] = []
    for size, key in candidates:
        environment = environment_of(key)
        bounded = bounded_environment(environment, batch_size, bounds)
        if (bounded, size) not in helps:
            if len(helps) == _MOST_TRIED:
                break
            helps[bounded, size] = _helps(batch_size, supplies, bounded, size)
        if helps[bounded, size]:
            found.append((environment, size))
            if len(found) == MOST_HINTS:
                break
    return tuple(found)


def _helps(batch_size: int, supplies: Sequence[Supply], environment: int | None, size: int) -> bool:
    """Return whether one more group of an environment lets a batch form.

    No batch exists without it, so the batch contains it.
    """
    with_it = [
        supply._replace(minimum=max(0, supply.minimum - size), maximum=supply.maximum - size)
        if supply.environment == environment
        else supply
        for supply in supplies
    ]
    return attainable(batch_size - size, with_it)
