"""Limit how far sampling and inserting may drift apart, like Reverb's limiter of samples per insert.

    error = inserts * samples_per_insert - samples + offset        stays within [min_diff, max_diff], in chunks

A request that would take the error out of the band waits for the other side. Inserts are free until there are
`min_size_to_sample` chunks and a requested sample can be taken (the demand). The last free insert may leave the band.
Otherwise both sides could wait: after a buffer lost its chunks (to a new session, a jump of the version), or for a
large sample and a large insert. So they never wait for each other if no sample is larger than `largest_sample` and no
insert larger than `largest_insert`.

Source: Cassirer et al., *Reverb: A Framework For Experience Replay* (2021), section 3.3.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lachesis.wire.errors import InvalidField
from lachesis.wire.printable import counted
from lachesis.wire.replay import RateLimiter
from lachesis.wire.states import BlockedOn

_ROUNDING = 1e-6  # 0.1 three times is a hair more than 0.3
_DEMAND_MS = 100_000  # a trainer that polls less often than this may find inserts blocked
_FURTHEST = 2.0**53  # beyond this, rounding loses single chunks


@dataclass(frozen=True, slots=True)
class LimiterState:
    """The state of a limiter.

    Attributes:
        inserts: Chunks inserted so far.
        samples: Chunks sampled so far, including leased ones, without those given back.
        size: Chunks sampleable now.
        offset: Added to the error. It cancels the jump that a change of the settings would cause.
        demand: Chunks in the largest recently requested sample that could not be taken; 0: none.
    """

    inserts: int = 0
    samples: int = 0
    size: int = 0
    offset: float = 0.0
    demand: int = 0


@dataclass(frozen=True, slots=True)
class LimiterBlock:
    """The reason why a side must wait.

    Attributes:
        blocked_on: What it waits for.
        missing: How many of them, ``>= 1``. An upper bound: a demand may allow inserts before.
        detail: The same as a sentence with the values in it.
    """

    blocked_on: BlockedOn
    missing: int
    detail: str


def _within(chunks: float) -> float:
    """Return a number of chunks within 0 and what can be counted. A bound of 1e308 means no bound."""
    return min(max(0.0, chunks), _FURTHEST)


def error(position: LimiterState, settings: RateLimiter) -> float:
    """Return how far inserting is ahead of sampling, in chunks to be sampled."""
    return position.inserts * settings.samples_per_insert - position.samples + position.offset


def may_insert(
    count: int, position: LimiterState, settings: RateLimiter | None, min_size_to_sample: int
) -> LimiterBlock | None:
    """Return why ``count`` chunks may not be inserted now; None if they may.

    Args:
        count: Chunks, 1 to `largest_insert`.
        position: The state of the limiter.
        settings: Its band. None: there is no limit.
        min_size_to_sample: Sampleable chunks below which inserts are free, ``>= 1``.
    """
    credit = inserts_open(position, settings, min_size_to_sample)
    if settings is None or credit is None or count <= credit:
        return None
    ahead = error(position, settings)
    missing = ahead + count * settings.samples_per_insert - settings.max_diff
    return LimiterBlock(
        "samples",
        math.ceil(_within(missing - _ROUNDING)),
        f"inserting {count} would take the error from {ahead:g} to {ahead + count * settings.samples_per_insert:g}, "
        f"above max_diff = {settings.max_diff:g}: {credit} may be inserted before more is sampled",
    )


def may_sample(
    count: int, position: LimiterState, settings: RateLimiter | None, min_size_to_sample: int
) -> LimiterBlock | None:
    """Return why ``count`` chunks may not be sampled now; None if they may.

    Args:
        count: Chunks, all different, 1 to `largest_sample`.
        position: The state of the limiter.
        settings: Its band, or None for no limit.
        min_size_to_sample: Sampleable chunks without which nothing is sampled, ``>= 1``.
    """
    needed = max(count, min_size_to_sample)
    if position.size < needed:
        detail = f"sampling {count} needs {counted(needed, 'chunk')}; {position.size} can be sampled"
        return LimiterBlock("chunks", needed - position.size, detail)
    credit = samples_open(position, settings, min_size_to_sample)
    if settings is None or count <= credit:
        return None
    ahead = error(position, settings)
    missing = (settings.min_diff + count - ahead) / settings.samples_per_insert
    return LimiterBlock(
        "inserts",
        math.ceil(_within(missing - _ROUNDING)),
        f"sampling {count} would take the error from {ahead:g} to {ahead - count:g}, "
        f"below min_diff = {settings.min_diff:g}: {credit} may be sampled before more is inserted",
    )


def inserts_in_order(
    counts: Sequence[int], position: LimiterState, settings: RateLimiter | None, min_size_to_sample: int
) -> list[LimiterBlock | None]:
    """Return why each of these inserts is blocked if they are served first come, first served; None if it is not.

    A blocked insert takes nothing from those behind it. Arguments as of `may_insert`.
    """
    blocks = []
    for count in counts:
        blocks.append(may_insert(count, position, settings, min_size_to_sample))
        if blocks[-1] is None:
            position = replace(position, inserts=position.inserts + count, size=position.size + count)
    return blocks


def samples_in_order(
    counts: Sequence[int], position: LimiterState, settings: RateLimiter | None, min_size_to_sample: int
) -> list[LimiterBlock | None]:
    """Return why each of these samples is blocked if they are served first come, first served; None if it is not.

    A blocked sample takes nothing from those behind it. Arguments as of `may_sample`.
    """
    blocks = []
    for count in counts:
        blocks.append(may_sample(count, position, settings, min_size_to_sample))
        if blocks[-1] is None:
            position = replace(position, samples=position.samples + count)
    return blocks


def inserts_open(position: LimiterState, settings: RateLimiter | None, min_size_to_sample: int) -> int | None:
    """Return how many chunks may be inserted now, ``>= 0``; None for no limit. Arguments as of `may_insert`."""
    if settings is None:
        return None
    ahead = error(position, settings)
    room = settings.max_diff - ahead + _ROUNDING
    chunks_missing = max(min_size_to_sample, position.demand) - position.size
    inserts_missing = (settings.min_diff + position.demand - ahead) / settings.samples_per_insert
    free = max(chunks_missing, math.ceil(_within(inserts_missing - _ROUNDING)))
    if free > 0:  # the insert that makes them enough may bring more
        free = max(free, largest_insert(settings) or 0)
    return max(free, math.floor(_within(room / settings.samples_per_insert)))


def samples_open(position: LimiterState, settings: RateLimiter | None, min_size_to_sample: int) -> int:
    """Return how many chunks, all different, may be sampled now, ``>= 0``. Arguments as of `may_sample`."""
    if position.size < min_size_to_sample:
        return 0
    if settings is None:
        return position.size
    room = error(position, settings) - settings.min_diff + _ROUNDING
    return min(position.size, math.floor(_within(room)))


def demand_to_note(chunks: int, noted: tuple[int, int], clock_ms: int) -> tuple[int, int] | None:
    """Return the demand of a sample that must wait, and until when it counts; None if the stored one suffices.

    It counts for a while after the request, because a trainer may poll instead of wait. A larger one is kept that long.

    Args:
        chunks: Chunks in the sample.
        noted: The stored demand, and the run clock until which it counts, milliseconds.
        clock_ms: The run clock, milliseconds.
    """
    known, until_ms = noted
    left_ms = until_ms - clock_ms
    if left_ms > 0 and (known > chunks or (known == chunks and 2 * left_ms > _DEMAND_MS)):
        return None
    return chunks, clock_ms + _DEMAND_MS


def largest_sample(settings: RateLimiter | None) -> int | None:
    """Return the largest sample that cannot deadlock with an insert, chunks, ``>= 1``; None: no limit."""
    if settings is None:
        return None
    return math.floor(_within(settings.max_diff - settings.min_diff - settings.samples_per_insert + _ROUNDING))


def largest_insert(settings: RateLimiter | None) -> int | None:
    """Return the largest insert that cannot deadlock with a sample of one chunk, ``>= 1``; None: no limit."""
    if settings is None:
        return None
    most = (settings.max_diff - settings.min_diff - 1 + _ROUNDING) / settings.samples_per_insert
    return math.floor(_within(most))


def check(settings: RateLimiter, max_reuse: int | None) -> None:
    """Reject settings under which inserts and samples deadlock.

    Args:
        settings: The band.
        max_reuse: Most samples of a chunk, or None.

    Raises:
        InvalidField: `location` names the field to change.
    """
    aim = settings.samples_per_insert
    if settings.min_diff > _FURTHEST or settings.max_diff < -_FURTHEST:
        name = "min_diff" if settings.min_diff > _FURTHEST else "max_diff"
        raise InvalidField(f"is {getattr(settings, name):g}, but should be between -2**53 and 2**53", (name,))
    width, least = settings.max_diff - settings.min_diff, 2 * max(1.0, aim)
    if not (math.isfinite(width) and width >= least):
        raise InvalidField(
            f"is min_diff + {width:g}, but should be finite, and at least min_diff + {least:g} "
            f"(2 * max(1, samples_per_insert)): inserts and samples could block each other",
            ("max_diff",),
        )
    if max_reuse is not None and aim > max_reuse:
        raise InvalidField(
            f"is {aim:g}, but a chunk is sampled at most max_reuse = {max_reuse} times: lower this, or raise max_reuse",
            ("samples_per_insert",),
        )


def adjusted(position: LimiterState, old: RateLimiter | None, new: RateLimiter | None) -> LimiterState:
    """Return the state of a limiter after its settings changed.

    The error stays the same, moved into the new band. So inserts and samples under the old settings do not count again
    under the new ones. When a limiter is switched on, the buffer's chunks count as inserted and never sampled.

    The same limiter keeps its state, also where its error is outside the band: before the first sample, for example.
    """
    if new == old:
        return position
    if new is None:
        return replace(position, offset=0.0)
    before = position.size * new.samples_per_insert if old is None else error(position, old)
    inside = min(max(before, new.min_diff), new.max_diff)
    return replace(position, offset=inside - (position.inserts * new.samples_per_insert - position.samples))
