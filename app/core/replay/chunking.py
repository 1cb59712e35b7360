"""Turn one worker's fragments into chunks: in order, and without long waits.

numbers    0 1 2 3   4 5 6 7   8 9        10             11 12 14
           chunk     chunk     open part  next_number:   waiting
                                          a gap

A stored fragment is in exactly one place: in a chunk, in the open part, among those that wait, or among those dropped
for a reason. A gap delays its worker's later fragments for at most `reorder_window_s`, and never those of other
workers. A fragment that is too stale is dropped together with the open part before it. The next chunk begins after it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from app.core.replay.buffer import Fragment, versions_drop_reason
from lachesis.wire.replay import ReplaySettings
from lachesis.wire.states import Arrival, ChunkDropReason, FragmentDropReason

GAPS_REMEMBERED = 16
"""The number of a worker's last gaps whose fragments get the answer ``late``. Those of older gaps get ``repeated``."""


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """The progress of a worker in the numbers it sends.

    Attributes:
        session: The training attempt that its numbers belong to.
        next_number: The number that continues the fragments that are here in order.
        open_part: Fragments in order, fewer than a chunk; the last has the number before `next_number`.
        waiting: Fragments behind a gap, by number.
        heard_ms: Run clock when a fragment last arrived, milliseconds.
        given_up: The last few gaps that were given up, as (first, last) number.
    """

    session: int
    next_number: int = 0
    open_part: tuple[Fragment, ...] = ()
    waiting: tuple[Fragment, ...] = ()
    heard_ms: int = 0
    given_up: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkingStep:
    """The changes that one event made.

    Attributes:
        state: The worker's state now.
        chunks: Chunks that were formed: `fragments_per_chunk` consecutive fragments each, in order.
        dropped: Fragments that will be in no chunk, and why.
        gaps: Gaps that were given up, as (first, last) number.
    """

    state: WorkerProgress
    chunks: tuple[tuple[Fragment, ...], ...] = ()
    dropped: tuple[tuple[Fragment, FragmentDropReason | ChunkDropReason], ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()


def arrive(
    state: WorkerProgress,
    fragment: Fragment,
    version: int,
    settings: ReplaySettings,
    chunked: Mapping[int, str] | None = None,
) -> tuple[Arrival, ChunkingStep]:
    """Take in a fragment.

    First the time is advanced to its `accepted_ms`, so the outcome does not depend on a timer.

    Args:
        state: The progress of its worker.
        fragment: The fragment. If it is of a later session than the state, that session begins.
        version: The policy version in force.
        settings: The buffer's.
        chunked: Checksums, by number, of fragments of this worker and session that are in chunks, where known.
    """
    if fragment.session < state.session:
        return "old_session", ChunkingStep(state)
    if fragment.session > state.session:
        before = change_session(state, fragment.session)
    else:
        before = pass_time(state, version, settings, fragment.accepted_ms)
    heard = replace(before.state, heard_ms=max(before.state.heard_ms, fragment.accepted_ms))
    arrival = _recognised(heard, fragment, chunked or {})
    if arrival != "stored":
        return arrival, replace(before, state=heard)
    waiting = tuple(sorted((*heard.waiting, fragment), key=lambda each: each.number))
    return arrival, _followed(before, _settled(replace(heard, waiting=waiting), version, settings))


def pass_time(state: WorkerProgress, version: int, settings: ReplaySettings, clock_ms: int) -> ChunkingStep:
    """Give up gaps that delayed later fragments for too long, and drop the fragments of a silent worker.

    First, cut off the chunks that are complete because a change of settings gave chunks fewer fragments.

    Args:
        state: The progress of the worker.
        version: The policy version in force.
        settings: The buffer's.
        clock_ms: The run clock, milliseconds.
    """
    silent = state.heard_ms + settings.fragment_ttl_s * 1000 <= clock_ms
    step = _in_order(state, version, settings) if _has_whole_chunk(state, settings) else ChunkingStep(state)
    while step.state.waiting and (silent or _overdue(step.state, settings, clock_ms)):
        step = _followed(step, _given_up(step.state, version, settings))
    if not silent:
        return step
    dropped = _dropped(step.state.open_part, "expired")
    return _followed(step, ChunkingStep(replace(step.state, open_part=()), dropped=dropped))


def change_session(state: WorkerProgress, session: int) -> ChunkingStep:
    """Drop all fragments outside chunks, and begin at number 0 of another session."""
    left = (*state.open_part, *state.waiting)
    return ChunkingStep(
        WorkerProgress(session, heard_ms=state.heard_ms),
        dropped=_dropped(left, "old_session"),
    )


def due_ms(state: WorkerProgress, settings: ReplaySettings) -> int | None:
    """Return the run clock at which `pass_time` next changes anything, milliseconds; None: never."""
    if not state.open_part and not state.waiting:
        return None
    if _has_whole_chunk(state, settings):
        return state.heard_ms
    times = [settings.fragment_ttl_s * 1000 + state.heard_ms]
    if state.waiting:
        times.append(settings.reorder_window_s * 1000 + _waiting_since_ms(state))
    return math.ceil(min(times))


def resume_number(state: WorkerProgress) -> int:
    """Return the number with which a worker that lost its count continues: the first after all that it sent."""
    return state.waiting[-1].number + 1 if state.waiting else state.next_number


def _has_whole_chunk(state: WorkerProgress, settings: ReplaySettings) -> bool:
    return len(state.open_part) >= settings.fragments_per_chunk


def _recognised(state: WorkerProgress, fragment: Fragment, chunked: Mapping[int, str]) -> Arrival:
    """Return whether a fragment is new, by its number and checksum."""
    here = {each.number: each.checksum for each in (*state.open_part, *state.waiting)}
    known = here.get(fragment.number, chunked.get(fragment.number))
    if known is not None:
        return "repeated" if known == fragment.checksum else "conflict"
    if fragment.number >= state.next_number:
        return "stored"
    late = any(first <= fragment.number <= last for first, last in state.given_up)
    return "late" if late else "repeated"


def _waiting_since_ms(state: WorkerProgress) -> int:
    """Return the run clock at which the gap behind the open part was noticed."""
    return min(each.accepted_ms for each in state.waiting)


def _overdue(state: WorkerProgress, settings: ReplaySettings, clock_ms: int) -> bool:
    return _waiting_since_ms(state) + settings.reorder_window_s * 1000 <= clock_ms


def _dropped(
    fragments: Iterable[Fragment], reason: FragmentDropReason
) -> tuple[tuple[Fragment, FragmentDropReason], ...]:
    return tuple((each, reason) for each in fragments)


def _given_up(state: WorkerProgress, version: int, settings: ReplaySettings) -> ChunkingStep:
    """Continue behind the first gap, and drop the open part before it."""
    first = state.waiting[0].number
    gap = (state.next_number, first - 1)
    dropped = _dropped(state.open_part, "gap")
    remembered = (*state.given_up, gap)[-GAPS_REMEMBERED:]
    behind = replace(state, next_number=first, open_part=(), given_up=remembered)
    return _followed(ChunkingStep(behind, dropped=dropped, gaps=(gap,)), _in_order(behind, version, settings))


def _settled(state: WorkerProgress, version: int, settings: ReplaySettings) -> ChunkingStep:
    """Put fragments in order that are no longer behind a gap. Give up gaps with too many fragments behind them."""
    step = _in_order(state, version, settings)
    while len(step.state.waiting) > settings.max_waiting:
        step = _followed(step, _given_up(step.state, version, settings))
    return step


def _in_order(state: WorkerProgress, version: int, settings: ReplaySettings) -> ChunkingStep:
    """Move consecutive fragments to the open part, drop those that no chunk can hold, and cut off chunks."""
    number, moved = state.next_number, 0
    while moved < len(state.waiting) and state.waiting[moved].number == number + moved:
        moved += 1
    chunks: list[tuple[Fragment, ...]] = []
    dropped: list[tuple[Fragment, FragmentDropReason | ChunkDropReason]] = []
    part: list[Fragment] = []
    for fragment in (*state.open_part, *state.waiting[:moved]):
        reason = versions_drop_reason(fragment.versions, version, settings)
        if reason is not None:
            dropped += [*((each, "gap") for each in part), (fragment, reason)]
            part = []
            continue
        part.append(fragment)
        if len(part) == settings.fragments_per_chunk:
            chunks.append(tuple(part))
            part = []
    left = replace(state, next_number=number + moved, open_part=tuple(part), waiting=state.waiting[moved:])
    return ChunkingStep(left, tuple(chunks), tuple(dropped))


def _followed(one: ChunkingStep, other: ChunkingStep) -> ChunkingStep:
    """Join two steps into one. The second began where the first one ended."""
    return ChunkingStep(other.state, one.chunks + other.chunks, one.dropped + other.dropped, one.gaps + other.gaps)
