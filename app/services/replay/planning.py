"""Plan what happens to a worker's fragments, from the state of the worker and of the buffer, without I/O."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from app.core.numeric.ewma import Rate
from app.core.numeric.newest import oldest_beyond
from app.core.replay.buffer import Fragment, chunk_drop_reason, chunk_of
from app.core.replay.chunking import ChunkingStep, WorkerProgress, arrive, change_session, due_ms, pass_time
from app.core.replay.rate_limiter import inserts_open, largest_insert
from app.core.replay.sampling import weight_of
from app.store.groups.checksums import checksum
from app.store.replay.entries import EncodedFragment, StoredWorker, fragment_rest, worker_text
from app.store.replay.insertions import Insertion, NewChunk, NewFragment
from app.store.replay.view import ReplayView
from lachesis.wire.errors import FragmentExists
from lachesis.wire.replay import ReplaySettings
from lachesis.wire.states import FRAGMENT_REFUSALS, Arrival, ChunkDropReason, FragmentDropReason

SPARE_VICTIMS = 16
"""Candidates for eviction to read besides one for each fragment or group that is inserted."""

_RECOGNISED = 64  # latest fragments of a worker in chunks whose checksums are remembered
_HEARD_PER_SILENCE = 4  # how often a blocked worker is noted before it would count as silent


@dataclass(frozen=True, slots=True)
class FragmentResult:
    """The receipt for a fragment.

    Attributes:
        number: Its number.
        outcome: What happened to it. Only those of `lachesis.wire.states.FragmentOutcome` can happen to a new one.
        fragment_id: Its id if it is stored now; None if not.
    """

    number: int
    outcome: Arrival | FragmentDropReason | ChunkDropReason
    fragment_id: str | None = None


@dataclass(slots=True)
class _InsertionPlan:
    """The plan for a worker's fragments, while it is made."""

    view: ReplayView
    worker: StoredWorker
    new_id: Callable[[], str]
    ids: dict[int, str]
    recent: dict[int, str]
    stored: dict[str, NewFragment] = field(default_factory=dict)  # by id
    chunks: list[NewChunk] = field(default_factory=list)
    dropped: dict[str, FragmentDropReason | ChunkDropReason] = field(default_factory=dict)  # fragment id -> reason
    counts: Counter[str] = field(default_factory=Counter)

    def receive(self, encoded: EncodedFragment) -> FragmentResult:
        """Take in a fragment. Return what happened to it, unless a later step drops it.

        Raises:
            FragmentExists: Its number belongs to a fragment with other contents.
        """
        context, settings, number = self.view.context, self.view.settings, encoded.number
        fragment = _fragment(encoded, context.clock_ms)
        reason = chunk_drop_reason(chunk_of([fragment], context.clock_ms), context, settings)
        if reason is not None and reason in FRAGMENT_REFUSALS:
            self.counts[f"refused:{reason}"] += 1
            return FragmentResult(number, reason)
        arrival, step = arrive(self.worker.state, fragment, context.version, settings, self.recent)
        if arrival == "conflict":
            raise FragmentExists(f"worker {encoded.worker} sent fragment {number} before, with other contents")
        if arrival == "stored":
            fragment_id = self.ids[number] = self.new_id()
            self.stored[fragment_id] = NewFragment(fragment_id, encoded.payload, fragment_rest(fragment, encoded.facts))
        self.counts["refused:late"] += arrival == "late"
        result = FragmentResult(number, arrival, self.ids.get(number))
        self.follow(step)
        return result

    def follow(self, step: ChunkingStep) -> None:
        """Record what a step changed."""
        context, settings = self.view.context, self.view.settings
        for fragments in step.chunks:
            ids = tuple(self.ids.pop(fragment.number) for fragment in fragments)
            self.recent.update({fragment.number: fragment.checksum for fragment in fragments})
            chunk = chunk_of(fragments, context.clock_ms)
            reason = chunk_drop_reason(chunk, context, settings)
            if reason is not None:
                self.dropped.update(dict.fromkeys(ids, reason))
            else:
                self.chunks.append(NewChunk(chunk, weight_of(chunk.priority, settings.sampling.alpha), ids))
        for fragment, why in step.dropped:
            self.dropped[self.ids.pop(fragment.number)] = why
        if step.state.session != self.worker.state.session:
            self.recent.clear()
        self.counts["gaps"] += len(step.gaps)
        self.worker = replace(self.worker, state=step.state, gaps=self.worker.gaps + len(step.gaps))

    def drop_what_has_no_room(self) -> None:
        """Drop new chunks that later ones of the same insertion would evict."""
        surplus = beyond_room(self.chunks, self.view.settings)
        for new in self.chunks[:surplus]:
            self.dropped.update(dict.fromkeys(new.fragment_ids, "evicted"))
        self.chunks = self.chunks[surplus:]

    def receipt(self, result: FragmentResult) -> FragmentResult:
        """Return what happened to a fragment in the end: a step may have dropped it after it was received."""
        if result.fragment_id not in self.dropped:
            return result
        return FragmentResult(result.number, self.dropped[result.fragment_id])


def beyond_room(chunks: Sequence[NewChunk], settings: ReplaySettings) -> int:
    """Return how many of the first of many new chunks the last of them would evict."""
    sizes = [new.chunk.payload_bytes for new in chunks]
    return oldest_beyond(sizes, settings.max_chunks, math.inf if settings.max_bytes is None else settings.max_bytes)


def plan_insertion(
    view: ReplayView,
    worker: str,
    known: StoredWorker,
    fragments: Sequence[EncodedFragment],
    victims: Sequence[str],
    new_id: Callable[[], str],
) -> tuple[Insertion | None, list[FragmentResult]]:
    """Plan what happens to the fragments that a worker sends now, and to those that it sent before.

    Args:
        view: The buffer.
        worker: The worker's name.
        known: The stored state of the worker.
        fragments: The fragments that it sends now. Empty for maintenance, which forgets workers that left long ago.
        victims: Chunks in the order of eviction.
        new_id: Makes unique ids.

    Returns:
        The change to carry out, and the receipt for each fragment. A change of None means that nothing changes.

    Raises:
        FragmentExists: A number belongs to a fragment with other contents.
    """
    context, settings = view.context, view.settings
    plan = _InsertionPlan(view, known, new_id, dict(known.ids), dict(known.recent))
    if known.state.session < context.session:
        plan.follow(change_session(known.state, context.session))
    else:
        plan.follow(pass_time(known.state, context.version, settings, context.clock_ms))
    results = [plan.receive(fragment) for fragment in fragments]
    plan.drop_what_has_no_room()
    receipts = [plan.receipt(result) for result in results]
    if fragments and not _changed(known, plan) and not +plan.counts:
        return None, receipts
    forgotten = not fragments and not plan.ids and _long_silent(plan.worker.state, view)
    return _insertion(worker, known, plan, victims, "" if forgotten else new_id()), receipts


def plan_heard(view: ReplayView, worker: str, known: StoredWorker, new_id: Callable[[], str]) -> Insertion | None:
    """Plan to note that a worker is there although its fragments must wait. Without this it would count as silent.

    Args:
        view: The buffer.
        worker: The worker's name.
        known: The stored state of the worker.
        new_id: Makes unique ids.

    Returns:
        The change to carry out. None if the worker is unknown, or was heard not long ago.
    """
    silence_ms = min(view.settings.fragment_ttl_s * 1000, view.memory_ms)
    clock_ms = view.context.clock_ms
    if not known.text or clock_ms < known.state.heard_ms + silence_ms / _HEARD_PER_SILENCE:
        return None
    now = replace(known, state=replace(known.state, heard_ms=clock_ms))
    return Insertion(worker, known.text, worker_text(now, new_id()), _due_ms(now.state, view))


def _fragment(encoded: EncodedFragment, clock_ms: int) -> Fragment:
    size, digest = len(encoded.payload), checksum(encoded.payload)
    place = (encoded.worker, encoded.session, encoded.number)
    return Fragment(*place, encoded.versions, size, digest, clock_ms, encoded.priority)


def _changed(known: StoredWorker, plan: _InsertionPlan) -> bool:
    return replace(known.state, heard_ms=0) != replace(plan.worker.state, heard_ms=0) or bool(plan.dropped)


def _insertion(
    worker: str,
    known: StoredWorker,
    plan: _InsertionPlan,
    victims: Sequence[str],
    token: str,
) -> Insertion:
    view, state, stored = plan.view, plan.worker.state, plan.stored
    clock_ms = view.context.clock_ms
    before = (*known.state.open_part, *known.state.waiting)
    after = (*state.open_part, *state.waiting)
    plan.counts["accepted_fragments"] += len(stored)
    plan.counts["waiting_fragments"] += len(after) - len(before)
    plan.counts["waiting_bytes"] += _bytes(after) - _bytes(before)
    for reason, count in Counter(plan.dropped.values()).items():
        plan.counts[f"dropped:{reason}"] += count
    since = known.rate if known.text else Rate(clock_ms, clock_ms)
    now = replace(
        plan.worker,
        ids=plan.ids,
        recent=dict(sorted(plan.recent.items())[-_RECOGNISED:]),
        accepted=known.accepted + len(stored),
        rate=since.after(len(stored), clock_ms),
    )
    return Insertion(
        worker=worker,
        seen=known.text,
        text=worker_text(now, token) if token else "",
        due_ms=_due_ms(state, view) if token else None,
        fragments=tuple(new for fragment_id, new in stored.items() if fragment_id not in plan.dropped),
        chunks=tuple(plan.chunks),
        victims=tuple(victims) if plan.chunks else (),
        freed=tuple(fragment_id for fragment_id in plan.dropped if fragment_id not in stored),
        most_inserts=_most_inserts(view, len(plan.chunks)),
        counts={name: count for name, count in plan.counts.items() if count},
    )


def _due_ms(state: WorkerProgress, view: ReplayView) -> int:
    """Return the run clock at which to look at a worker again, milliseconds."""
    due = due_ms(state, view.settings)
    return state.heard_ms + view.memory_ms if due is None else due


def _long_silent(state: WorkerProgress, view: ReplayView) -> bool:
    return view.context.clock_ms >= state.heard_ms + view.memory_ms


def _bytes(fragments: Sequence[Fragment]) -> int:
    return sum(fragment.payload_bytes for fragment in fragments)


def _most_inserts(view: ReplayView, chunks: int) -> int | None:
    """Return the largest total of inserted chunks that the rate limiter allows after this insertion.

    Chunks that a closed gap completes cannot be divided. They count as the most that may be inserted at once.
    """
    settings: ReplaySettings = view.settings
    credit = inserts_open(view.position, settings.limiter, settings.min_size_to_sample)
    at_once = largest_insert(settings.limiter)
    if credit is None or at_once is None or not chunks:
        return None
    return view.position.inserts + credit + max(0, chunks - at_once)
