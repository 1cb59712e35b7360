"""Taking fragments in: put in order, put together as chunks, held back by the rate limiter."""

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
    """Make an id never used before; shorter than a UUID, as each chunk's entry lists those of its fragments."""
    return secrets.token_hex(10)


class ReplayInsertion:
    """The way in for fragments."""

    def __init__(self, replay: ReplayStore, notifier: ChangeNotifier) -> None:
        self._replay = replay
        self._notifier = notifier
        self.queue = BlockedRequests()
        self._evictions: dict[str, Eviction] = {}
        # Insertions of one process need not outdate each other; those of a worker have to come one after the other.
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def insert(
        self, run: str, fragments: Sequence[EncodedFragment], wait_s: float = 0.0, stop: asyncio.Event | None = None
    ) -> list[FragmentReceipt]:
        """Store fragments of one worker, all or none; once this returns they survive any crash.

        Repeating it stores nothing. Not to be cancelled while it waits: set ``stop`` instead.

        Args:
            run: The run's name.
            fragments: What to store; all of one worker and session, no number twice.
            wait_s: How long to wait for the rate limiter, seconds.
            stop: Ends the wait.

        Returns:
            What became of each.

        Raises:
            ReplayNotFound: The run has no replay buffer.
            InvalidField: They are of several workers or sessions, or two have one number.
            FragmentExists: A number names a fragment of other contents; nothing was stored.
            ReplayBlocked: The rate limiter holds inserts back; nothing was stored.
            StoreFull: Redis is out of memory; nothing was stored.
            StoreUnavailable: Redis did not answer; nothing is promised.
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
        """Carry out what time and the session make of what a worker has sent: gaps, silence, chunks."""
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
            if blocked is not None:  # before its payloads are written for nothing
                return blocked
            match await self._replay.insert(run, insertion, view):
                case "inserted":
                    return receipts
                case "crowded":
                    candidates *= 2


def _why(view: ReplayView, insertion: Insertion) -> LimiterBlock | None:
    """Say why the rate limiter holds an insertion back, if it does."""
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
