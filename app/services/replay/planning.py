"""What becomes of a worker's fragments, decided on what is known of it and of the buffer: no I/O."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from app.core.errors import FragmentExists
from app.core.numeric.ewma import Rate
from app.core.replay.buffer import ChunkDropReason, Fragment, ReplayPolicy, chunk_drop_reason, chunk_of
from app.core.replay.chunking import Arrival, ChunkingStep, WorkerProgress, arrive, change_session, due_ms, pass_time
from app.core.replay.rate_limiter import inserts_open, largest_insert
from app.core.replay.sampling import weight_of
from app.store.groups.codec import checksum
from app.store.replay.entries import EncodedFragment, StoredWorker, fragment_rest, worker_text
from app.store.replay.insertions import Insertion, NewChunk, NewFragment
from app.store.replay.view import ReplayView

REFUSED = (
    ChunkDropReason.OLD_SESSION,
    ChunkDropReason.FUTURE_SESSION,
    ChunkDropReason.FUTURE_VERSION,
    ChunkDropReason.TOO_LARGE,
)
"""Why a fragment is not taken in; what is unfit for another reason is, and dropped."""

_RECOGNISED = 64  # latest fragments in chunks whose checksums are known of a worker


@dataclass(frozen=True, slots=True)
class FragmentReceipt:
    """What became of a fragment.

    Attributes:
        number: Its number.
        outcome: ``stored``, or ``repeated``; ``late``, ``old_session``, ``future_session``, ``future_version`` or
            ``too_large``: refused, and the number is still free; ``stale``, ``gap`` or ``evicted``: taken in, and
            dropped at once.
        fragment_id: Its id if it is stored now, else None.
    """

    number: int
    outcome: str
    fragment_id: str | None = None


@dataclass(slots=True)
class _InsertionPlan:
    """A worker's fragments as they are sorted out."""

    view: ReplayView
    worker: StoredWorker
    ids: dict[int, str]
    recent: dict[int, str]
    chunks: list[NewChunk] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)  # fragment id -> why
    counts: Counter[str] = field(default_factory=Counter)

    def follow(self, step: ChunkingStep) -> None:
        """Take over what a step changed."""
        standing, policy = self.view.standing, self.view.policy
        for fragments in step.chunks:
            ids = tuple(self.ids.pop(fragment.number) for fragment in fragments)
            self.recent.update({fragment.number: fragment.checksum for fragment in fragments})
            chunk = chunk_of(fragments, standing.clock_ms)
            reason = chunk_drop_reason(chunk, standing, policy)
            if reason is not None:
                self.dropped.update(dict.fromkeys(ids, reason.value))
            else:
                self.chunks.append(NewChunk(chunk, weight_of(chunk.priority, policy.sampling.alpha), ids))
        for fragment, why in step.dropped:
            self.dropped[self.ids.pop(fragment.number)] = why.value
        if step.state.session != self.worker.state.session:
            self.recent.clear()
        self.counts["gaps"] += len(step.gaps)
        self.worker = replace(self.worker, state=step.state, gaps=self.worker.gaps + len(step.gaps))

    def drop_what_has_no_room(self) -> None:
        """Drop those of many new chunks that the last of them would evict."""
        surplus = beyond_room(self.chunks, self.view.policy)
        for new in self.chunks[:surplus]:
            self.dropped.update(dict.fromkeys(new.fragment_ids, ChunkDropReason.EVICTED.value))
        self.chunks = self.chunks[surplus:]


def beyond_room(chunks: Sequence[NewChunk], policy: ReplayPolicy) -> int:
    """Return how many of the first of many new chunks the last of them would evict."""
    kept, payload_bytes = 0, 0
    for new in reversed(chunks):
        payload_bytes += new.chunk.payload_bytes
        if kept == policy.max_chunks or (policy.max_bytes is not None and payload_bytes > policy.max_bytes):
            break
        kept += 1
    return len(chunks) - kept


def plan_insertion(
    view: ReplayView,
    worker: str,
    known: StoredWorker,
    fragments: Sequence[EncodedFragment],
    victims: Sequence[str],
    new_id: Callable[[], str],
) -> tuple[Insertion | None, list[FragmentReceipt]]:
    """Sort out what a worker sent, and what time and the session have made of what it sent before.

    Args:
        view: The buffer.
        worker: Who.
        known: What is known of it.
        fragments: What it sent now; nothing if it is only looked after, and forgotten if it is long gone.
        victims: Chunks that are evicted first.
        new_id: Makes ids never used before.

    Returns:
        The change to carry out, None if what was sent changes nothing; and what became of each fragment.

    Raises:
        FragmentExists: A number names a fragment of other contents.
    """
    standing, policy = view.standing, view.policy
    account = _InsertionPlan(view, known, dict(known.ids), dict(known.recent))
    if known.state.session < standing.session:
        account.follow(change_session(known.state, standing.session))
    else:
        account.follow(pass_time(known.state, standing.version, policy, standing.clock_ms))
    outcomes: list[tuple[int, str, str | None]] = []
    stored: dict[str, NewFragment] = {}
    for encoded in fragments:
        fragment = _fragment(encoded, standing.clock_ms)
        reason = chunk_drop_reason(chunk_of([fragment], standing.clock_ms), standing, policy)
        if reason in REFUSED:
            account.counts[f"refused:{reason}"] += 1
            outcomes.append((encoded.number, reason.value, None))
            continue
        arrival, step = arrive(account.worker.state, fragment, standing.version, policy, account.recent)
        if arrival is Arrival.CONFLICT:
            raise FragmentExists(f"worker {worker} sent fragment {encoded.number} before, with other contents")
        if arrival is Arrival.STORED:
            fragment_id = account.ids[encoded.number] = new_id()
            stored[fragment_id] = NewFragment(fragment_id, encoded.payload, fragment_rest(fragment, encoded.facts))
            outcomes.append((encoded.number, arrival.value, fragment_id))
        else:
            account.counts["refused:late"] += arrival is Arrival.LATE
            outcomes.append((encoded.number, arrival.value, account.ids.get(encoded.number)))
        account.follow(step)
    account.drop_what_has_no_room()
    receipts = [_receipt(*outcome, account.dropped) for outcome in outcomes]
    if fragments and not _changed(known, account) and not +account.counts:
        return None, receipts
    forgotten = not fragments and not account.ids and _long_silent(account.worker.state, view)
    return _insertion(worker, known, account, stored, victims, "" if forgotten else new_id()), receipts


def _fragment(encoded: EncodedFragment, clock_ms: int) -> Fragment:
    size, digest = len(encoded.payload), checksum(encoded.payload)
    place = (encoded.worker, encoded.session, encoded.number)
    return Fragment(*place, encoded.versions, size, digest, clock_ms, encoded.priority)


def _receipt(number: int, outcome: str, fragment_id: str | None, dropped: dict[str, str]) -> FragmentReceipt:
    if fragment_id in dropped:
        return FragmentReceipt(number, dropped[fragment_id])
    return FragmentReceipt(number, outcome, fragment_id)


def _changed(known: StoredWorker, account: _InsertionPlan) -> bool:
    return replace(known.state, heard_ms=0) != replace(account.worker.state, heard_ms=0) or bool(account.dropped)


def _insertion(
    worker: str,
    known: StoredWorker,
    account: _InsertionPlan,
    stored: dict[str, NewFragment],
    victims: Sequence[str],
    token: str,
) -> Insertion:
    view, state = account.view, account.worker.state
    clock_ms = view.standing.clock_ms
    before = (*known.state.open_part, *known.state.waiting)
    after = (*state.open_part, *state.waiting)
    account.counts["accepted_fragments"] += len(stored)
    account.counts["waiting_fragments"] += len(after) - len(before)
    account.counts["waiting_bytes"] += _bytes(after) - _bytes(before)
    for reason, count in Counter(account.dropped.values()).items():
        account.counts[f"dropped:{reason}"] += count
    since = known.rate if known.text else Rate(clock_ms, clock_ms)
    now = replace(
        account.worker,
        ids=account.ids,
        recent=dict(sorted(account.recent.items())[-_RECOGNISED:]),
        accepted=known.accepted + len(stored),
        rate=since.after(len(stored), clock_ms),
    )
    due = due_ms(state, view.policy)
    return Insertion(
        worker=worker,
        seen=known.text,
        text=worker_text(now, token) if token else "",
        due_ms=(state.heard_ms + view.memory_ms if due is None else due) if token else None,
        fragments=tuple(new for fragment_id, new in stored.items() if fragment_id not in account.dropped),
        chunks=tuple(account.chunks),
        victims=tuple(victims) if account.chunks else (),
        freed=tuple(fragment_id for fragment_id in account.dropped if fragment_id not in stored),
        most_inserts=_most_inserts(view, len(account.chunks)),
        counts={name: count for name, count in account.counts.items() if count},
    )


def _long_silent(state: WorkerProgress, view: ReplayView) -> bool:
    return view.standing.clock_ms >= state.heard_ms + view.memory_ms


def _bytes(fragments: Sequence[Fragment]) -> int:
    return sum(fragment.payload_bytes for fragment in fragments)


def _most_inserts(view: ReplayView, chunks: int) -> int | None:
    """Return how many chunks may have been inserted in all after this.

    What a closed gap lets go on at once cannot be divided; it counts as no more than may be inserted at once.
    """
    policy: ReplayPolicy = view.policy
    credit = inserts_open(view.position, policy.limiter, policy.min_size_to_sample)
    at_once = largest_insert(policy.limiter)
    if credit is None or at_once is None or not chunks:
        return None
    return view.position.inserts + credit + max(0, chunks - at_once)
