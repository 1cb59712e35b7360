"""Insert fragments: order them, assemble chunks, and wait for the rate limiter."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple, assert_never
from weakref import WeakValueDictionary

from app.core.replay.buffer import ReplayContext
from app.core.replay.rate_limiter import LimiterBlock, inserts_in_order, largest_insert
from app.services.long_poll import AttemptLock, LongPoll, WaitPolicy
from app.services.replay.planning import SPARE_VICTIMS, FragmentResult, plan_heard, plan_insertion
from app.store.redis.compare_and_swap import Attempts
from app.store.redis.notifications import Listen
from app.store.replay.entries import EncodedFragment
from app.store.replay.store import MOST_WORKERS, ReplayStore
from app.store.replay.view import ReplayView, no_buffer
from lachesis.wire.errors import FragmentExists, InvalidField, ReplayBlocked, RunFull, StoreFull
from lachesis.wire.replay import Eviction, ReplaySettings


def new_id() -> str:
    """Return a new unique id. It is shorter than a UUID, because each chunk's entry lists the ids of its fragments."""
    return secrets.token_hex(10)


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Worker:
    """A worker whose insertions come one after the other: concurrent ones would retry, and they must stay in order."""

    name: str
    attempt_lock: AttemptLock = field(default_factory=AttemptLock)
    insertions: int = 0


class _Basis(NamedTuple):
    """What decides, apart from the time, how many chunks a worker's fragments complete."""

    settings: ReplaySettings
    context: ReplayContext
    insertions: int


@dataclass(slots=True, eq=False)
class _Insert:
    """A request to insert fragments of one worker.

    Attributes:
        chunks: How many chunks they completed when they were last planned, as the rate limiter counts them.
        planned_on: What that depended on.
    """

    worker: _Worker
    fragments: Sequence[EncodedFragment]
    chunks: int = 0
    planned_on: _Basis | None = None

    def basis(self, view: ReplayView) -> _Basis:
        """Return what the chunks that they complete depend on now."""
        return _Basis(view.settings, replace(view.context, clock_ms=0), self.worker.insertions)

    def needs(self, view: ReplayView) -> int:
        """Return how many chunks they complete; 0 if that must be planned again."""
        return self.chunks if self.planned_on == self.basis(view) else 0


_Outcome = list[FragmentResult] | LimiterBlock


class ReplayInsertion:
    """Takes in fragments.

    Attributes:
        queue: The inserts that wait for the rate limiter.
    """

    def __init__(self, replay: ReplayStore, listen: Listen) -> None:
        self._replay = replay
        policy = WaitPolicy[_Insert, _Outcome](
            attempt=self._attempt,
            overtaking=self._overtaking,
            found=_is_stored,
            own_errors=(FragmentExists, InvalidField, RunFull, StoreFull),
        )
        self.queue = LongPoll(policy, listen)
        self._evictions: dict[str, Eviction] = {}
        self._workers: WeakValueDictionary[tuple[str, str], _Worker] = WeakValueDictionary()

    async def insert(
        self,
        run: str,
        fragments: Sequence[EncodedFragment],
        wait_s: float = 0.0,
        stop: "asyncio.Future[None] | None" = None,
    ) -> list[FragmentResult]:
        """Store fragments of one worker, all or none. Once this returns they survive any crash.

        Safe to repeat. Do not cancel this call while it waits, end ``stop`` instead.

        Args:
            run: The run's name.
            fragments: The fragments to store: all of one worker and session, without duplicate numbers.
            wait_s: How long to wait for the rate limiter, seconds.
            stop: Ends the wait.

        Returns:
            The receipt for each fragment.

        Raises:
            ReplayNotFound: The run has no replay buffer.
            InvalidField: The fragments are of several workers or sessions, or two have the same number.
            FragmentExists: A number belongs to a fragment with other contents. Nothing was stored.
            ReplayBlocked: The rate limiter blocks inserts. Nothing was stored.
            RunFull: The worker is new, and the buffer has `MOST_WORKERS` workers. Nothing was stored.
            StoreFull: Redis is out of memory. Nothing was stored.
            StoreUnavailable: Redis did not answer. The fragments may be stored or not.
        """
        _check(fragments)
        if not fragments:
            return []
        request = _Insert(self._worker(run, fragments[0].worker), fragments)
        found = await self.queue.take(run, request, wait_s, stop)
        if isinstance(found, LimiterBlock):
            raise ReplayBlocked(f"the rate limiter holds inserts back: {found.detail}")
        return found

    async def maintain(self, run: str, worker: str) -> None:
        """Apply time and the current session to a worker's fragments: gaps, silence, chunks."""
        await self._attempt(run, _Insert(self._worker(run, worker), ()), (), compete=True)

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these."""
        self._evictions = {run: eviction for run, eviction in self._evictions.items() if run in runs}

    def _worker(self, run: str, name: str) -> _Worker:
        return self._workers.setdefault((run, name), _Worker(name))

    async def _attempt(
        self,
        run: str,
        request: _Insert,
        ahead: Sequence[_Insert],
        *,
        compete: bool,  # noqa: ARG002 - processes take no turns in inserts
    ) -> _Outcome:
        async with request.worker.attempt_lock.attempt():
            return await self._insert(run, request, ahead)

    async def _insert(self, run: str, request: _Insert, ahead: Sequence[_Insert]) -> _Outcome:
        candidates = len(request.fragments) + SPARE_VICTIMS
        attempts = Attempts("insert fragments", run)
        while attempts.again():
            eviction = self._evictions.get(run, "oldest")
            found = await self._replay.look(run, request.worker.name, eviction, candidates)
            if found is None:
                raise no_buffer(run)
            view, known, victims = found
            if view.settings.eviction != eviction:
                self._evictions[run] = view.settings.eviction
                continue
            insertion, receipts = plan_insertion(view, request.worker.name, known, request.fragments, victims, new_id)
            if insertion is None:
                return receipts
            request.chunks, request.planned_on = _counted(len(insertion.chunks), view), request.basis(view)
            *_, blocked = _blocks(view, [*ahead, request])
            if blocked is not None:  # checked before payloads are written that would be removed again
                heard = plan_heard(view, request.worker.name, known, new_id) if request.fragments else None
                if heard is not None:
                    with suppress(StoreFull):  # then a later request notes it
                        await self._replay.insert(run, heard, view)
                return blocked
            match await self._replay.insert(run, insertion, view):
                case "inserted":
                    request.worker.insertions += 1
                    return receipts
                case "crowded":
                    candidates *= 2
                case "full" if request.fragments:
                    name = request.worker.name
                    raise RunFull(f"the replay buffer has {MOST_WORKERS} workers, and worker {name} is new")
                case "full":
                    return receipts  # maintenance of a worker that another process has just forgotten
                case "outdated" | "blocked":
                    pass  # read and plan again
                case _ as never:
                    assert_never(never)

    async def _overtaking(self, run: str, requests: Sequence[_Insert]) -> list[int]:
        """Return the requests that complete fewer chunks than those before them, and so are not blocked."""
        view = await self._replay.existing(run)
        return [position for position, blocked in enumerate(_blocks(view, requests)) if blocked is None]


def _blocks(view: ReplayView, requests: Sequence[_Insert]) -> list[LimiterBlock | None]:
    needs = [request.needs(view) for request in requests]
    return inserts_in_order(needs, view.position, view.settings.limiter, view.settings.min_size_to_sample)


def _counted(chunks: int, view: ReplayView) -> int:
    """Return what the rate limiter counts: chunks that a closed gap completes cannot be divided."""
    at_once = largest_insert(view.settings.limiter)
    return chunks if at_once is None else min(chunks, at_once)


def _is_stored(outcome: _Outcome) -> bool:
    return not isinstance(outcome, LimiterBlock)


def _check(fragments: Sequence[EncodedFragment]) -> None:
    numbers = Counter(fragment.number for fragment in fragments)
    for position, fragment in enumerate(fragments):
        for name in ("worker", "session"):
            own, first = getattr(fragment, name), getattr(fragments[0], name)
            if own != first:
                raise InvalidField(f"is {own}, but the first fragment's is {first}", ("fragments", position, name))
        if numbers[fragment.number] > 1:
            why = f"is {fragment.number}, as of {numbers[fragment.number]} fragments here: each needs its own number"
            raise InvalidField(why, ("fragments", position, "number"))
