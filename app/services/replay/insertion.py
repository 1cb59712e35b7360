"""Insert fragments: order them, assemble chunks, and wait for the rate limiter."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from weakref import WeakValueDictionary

from app.core.errors import InvalidField, ReplayBlocked, ReplayNotFound
from app.core.replay.buffer import Eviction
from app.core.replay.rate_limiter import LimiterBlock, may_insert
from app.services.replay.change_notifier import BlockedRequests, ChangeNotifier
from app.services.replay.planning import FragmentReceipt, plan_insertion
from app.store.redis.compare_and_swap import Attempts
from app.store.replay.entries import EncodedFragment
from app.store.replay.insertions import Insertion
from app.store.replay.store import ReplayStore
from app.store.replay.view import ReplayView

_SPARE_VICTIMS = 16


def new_id() -> str:
    """Return a new unique id. It is shorter than a UUID, because each chunk's entry lists the ids of its fragments."""
    return secrets.token_hex(10)


class ReplayInsertion:
    """Takes in fragments."""

    def __init__(self, replay: ReplayStore, notifier: ChangeNotifier) -> None:
        self._replay = replay
        self._notifier = notifier
        self.queue = BlockedRequests()
        self._evictions: dict[str, Eviction] = {}
        # Concurrent insertions of one process would make each other retry, and those of a worker must stay in order.
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def insert(
        self, run: str, fragments: Sequence[EncodedFragment], wait_s: float = 0.0, stop: asyncio.Event | None = None
    ) -> list[FragmentReceipt]:
        """Store fragments of one worker, all or none. Once this returns they survive any crash.

        Safe to repeat. Do not cancel this call while it waits, set ``stop`` instead.

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
            StoreFull: Redis is out of memory. Nothing was stored.
            StoreUnavailable: Redis did not answer. The fragments may be stored or not.
        """
        _check(fragments)
        if not fragments:
            return []
        worker = fragments[0].worker
        blocked: LimiterBlock | None = None

        async def attempt() -> list[FragmentReceipt] | None:
            nonlocal blocked
            async with self._turns.setdefault((run, worker), asyncio.Lock()):
                found = await self._insert(run, worker, fragments)
            if isinstance(found, LimiterBlock):
                blocked = found
                return None
            return found

        receipts = await self._notifier.until(run, attempt, wait_s, stop, self.queue)
        if receipts is None:
            assert blocked is not None, "an attempt that gives nothing was blocked"  # noqa: S101
            raise ReplayBlocked(f"the rate limiter holds inserts back: {blocked.detail}")
        return receipts

    async def look_after(self, run: str, worker: str) -> None:
        """Apply time and the current session to a worker's fragments: gaps, silence, chunks."""
        async with self._turns.setdefault((run, worker), asyncio.Lock()):
            await self._insert(run, worker, ())

    async def _insert(
        self, run: str, worker: str, fragments: Sequence[EncodedFragment]
    ) -> list[FragmentReceipt] | LimiterBlock:
        candidates = len(fragments) + _SPARE_VICTIMS
        attempts = Attempts("insert fragments", run)
        while attempts.again():
            eviction = self._evictions.get(run, Eviction.OLDEST)
            found = await self._replay.look(run, worker, eviction, candidates)
            if found is None:
                raise ReplayNotFound(f"run {run} has no replay buffer")
            view, known, victims = found
            if view.policy.eviction is not eviction:
                self._evictions[run] = view.policy.eviction
                continue
            insertion, receipts = plan_insertion(view, worker, known, fragments, victims, new_id)
            if insertion is None:
                return receipts
            blocked = _why(view, insertion)
            if blocked is not None:  # checked before payloads are written that would be removed again
                return blocked
            match await self._replay.insert(run, insertion, view):
                case "inserted":
                    return receipts
                case "crowded":
                    candidates *= 2


def _why(view: ReplayView, insertion: Insertion) -> LimiterBlock | None:
    """Return why the rate limiter blocks an insertion; None if it does not."""
    chunks, position = len(insertion.chunks), view.position
    if insertion.most_inserts is None or position.inserts + chunks <= insertion.most_inserts:
        return None
    return may_insert(chunks, position, view.policy.limiter, view.policy.min_size_to_sample)


def _check(fragments: Sequence[EncodedFragment]) -> None:
    numbers = Counter(fragment.number for fragment in fragments)
    for position, fragment in enumerate(fragments):
        for name in ("worker", "session"):
            own, first = getattr(fragment, name), getattr(fragments[0], name)
            if own != first:
                raise InvalidField(f"is {own}, but the first fragment's is {first}", ("fragments", position, name))
        if numbers[fragment.number] > 1:
            raise InvalidField(f"{numbers[fragment.number]} fragments have it", ("fragments", position, "number"))
