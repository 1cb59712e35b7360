"""A memory budget for the large bodies that a process reads, decodes and stores at a time.

A body holds a share of the budget from its first large part until its answer. The share grows as bytes arrive. A body
without room waits unread, so TCP holds its client back. `app.core.body_memory` decides who gets room, who waits, and
which slow bodies are evicted.

The rule looks at the bodies that hold memory, and at the first of each sender that waits for its first memory. The
others of that sender queue, and cost nothing. The rule is applied at most once in a turn of the event loop. After an
eviction, that sender's queue waits a moment: otherwise reading its next body up to the next eviction costs much.

Growing shares could deadlock. The rule prevents it: the oldest body that is not slow gets what it wants. It is decoded
and stored, and releases its share. Then the next one is the oldest. In the worst case the budget is exceeded by two
bodies.

A body that waits for something other than memory would break this. So it leaves the budget first
(`BodyShare.let_wait`). All that wait like this hold a quarter of the budget more, or one of them more.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

from app import telemetry
from app.core.body_memory import PACE_BYTES, BodyClaim, MemoryLimits, Owner, plan_memory
from lachesis.wire.errors import RequestTimeout

UNCOUNTED_BYTES = 256 * 1024
"""Bodies up to this size do not use the budget, and never wait: the connection itself holds as much."""

_STEP_BYTES = 256 * 1024
_PATIENCE_S = 2.0
_SENDER_BODIES = 32
_DELAYED_SHARE = 0.25
_ACCOUNT_SHARE, _ACCOUNT_BODIES = 0.75, 2  # share of all memory; multiple of the bodies of a sender
_HOLD_BACK_S = 0.25
_LOOK_S = 0.25  # while bodies wait, others become slow


class BodyBudget:
    """The budget of one process; used on its event loop only.

    Args:
        budget_bytes: The bytes that all shares except two may hold together.
        patience_s: The longest time for a MiB of a body while other bodies wait.
        sender_bodies: The most bodies of one sender that hold memory, except two.
        hold_back_s: How long the queue of a sender waits after an eviction of one of its bodies.

    Attributes:
        evicted: How many bodies were evicted.
        planned: How many bodies the rule looked at, in all.
    """

    def __init__(
        self,
        budget_bytes: int,
        patience_s: float = _PATIENCE_S,
        sender_bodies: int = _SENDER_BODIES,
        hold_back_s: float = _HOLD_BACK_S,
    ) -> None:
        self._limits = MemoryLimits(
            budget_bytes,
            budget_bytes // 2,
            patience_s,
            sender_bodies,
            int(_ACCOUNT_SHARE * budget_bytes),
            _ACCOUNT_BODIES * sender_bodies,
        )
        self._most_delayed_bytes = int(_DELAYED_SHARE * budget_bytes)
        self._delayed: set[BodyShare] = set()  # those that wait for something other than memory
        self._held_bytes = 0
        self._held_by: Counter[Owner] = Counter()
        self._bodies_of: Counter[Owner] = Counter()  # that hold memory
        self._holding: dict[BodyShare, None] = {}
        # By sender and account: those that wait for their first memory, and until when they are held back.
        self._queued: dict[tuple[str, str], dict[BodyShare, None]] = {}
        self._held_back: dict[tuple[str, str], float] = {}
        self._hold_back_s = hold_back_s
        self._places = count()
        self._waiting = 0
        self._timer: asyncio.Handle | None = None
        self._soon = False
        self.evicted = 0
        self.planned = 0

    @property
    def held_bytes(self) -> int:
        """Return the bytes that all shares hold now."""
        return self._held_bytes + self._delayed_bytes

    @property
    def waiting(self) -> int:
        """Return how many bodies wait for room."""
        return self._waiting

    def samples(self) -> Iterator[telemetry.Sample]:
        """Yield what the metrics say of the budget."""
        yield telemetry.BODY_MEMORY, (), self.held_bytes
        yield telemetry.BODIES_WAITING, (), self._waiting
        yield telemetry.BODIES_EVICTED, (), self.evicted

    def share(self, sender: str, account: str | None = None) -> "BodyShare":
        """Create an empty share. The caller that claims with it must release it.

        Args:
            sender: Who sends the body. One sender's bodies hold at most half of the budget.
            account: With whose credentials. One account's bodies hold at most three quarters of the budget.
        """
        return BodyShare(self, sender, account or "")

    def _enter(self, share: "BodyShare") -> None:
        more_bytes, more_bodies = share.missing_bytes, int(share not in self._holding)
        fits = self._held_bytes + more_bytes <= self._limits.total_bytes and all(
            self._held_by[owner] + more_bytes <= most_bytes and self._bodies_of[owner] + more_bodies <= most_bodies
            for owner, most_bytes, most_bodies in self._limits.of(*share.origin)
        )
        if share not in self._holding:
            share.place = next(self._places)
        if fits and not self._waiting:
            self._grant(share)  # as the rule would, without asking each share
            return
        self._waiting += 1
        if share not in self._holding:
            queue = self._queued.setdefault(share.origin, {})
            queue[share] = None
            if len(queue) > 1:
                return  # the rule looks at the first only
        self._serve_soon()

    @property
    def _delayed_bytes(self) -> int:
        return sum(share.held_bytes for share in self._delayed)

    def _delay(self, share: "BodyShare") -> bool:
        if share not in self._holding:
            return True
        if self._delayed and self._delayed_bytes + share.held_bytes > self._most_delayed_bytes:
            return False
        self._drop(share)
        self._delayed.add(share)
        self._serve_soon()
        return True

    def _leave(self, share: "BodyShare") -> None:
        if share in self._holding:
            self._drop(share)
        elif share.waits:
            self._dequeue(share)
        else:
            self._delayed.discard(share)
            return
        self._waiting -= share.waits
        self._serve_soon()

    def _serve_soon(self) -> None:
        if self._waiting and not self._soon:
            self._soon = True
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Apply the rule, and again after a while if bodies still wait."""
        self._timer, self._soon = None, False
        if not self._waiting:
            return
        now_s = _now_s()
        self._held_back = {origin: until_s for origin, until_s in self._held_back.items() if until_s > now_s}
        first = [next(iter(queue)) for origin, queue in self._queued.items() if origin not in self._held_back]
        shares = sorted([*self._holding, *first], key=lambda share: share.place)
        self.planned += len(shares)
        plan = plan_memory([share.as_claim(now_s) for share in shares], self._limits)
        for place in plan.evicted:
            self._drop(shares[place])
            self.evicted += 1
            shares[place].evict()
            self._held_back[shares[place].origin] = now_s + self._hold_back_s
        for place in plan.granted:
            self._waiting -= 1
            if shares[place] not in self._holding:
                self._dequeue(shares[place])
            self._grant(shares[place])
        if not self._waiting:
            return
        if plan.granted:
            self._serve_soon()  # others are the first of their senders now
        else:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._serve)

    def _grant(self, share: "BodyShare") -> None:
        self._count(share, share.missing_bytes)
        if share not in self._holding:
            self._holding[share] = None
            for owner, _, _ in self._limits.of(*share.origin):
                self._bodies_of[owner] += 1
        share.grant()

    def _drop(self, share: "BodyShare") -> None:
        del self._holding[share]
        self._count(share, -share.held_bytes)
        for owner, _, _ in self._limits.of(*share.origin):
            self._bodies_of[owner] -= 1
            if not self._bodies_of[owner]:
                del self._bodies_of[owner]

    def _dequeue(self, share: "BodyShare") -> None:
        queue = self._queued[share.origin]
        del queue[share]
        if not queue:
            del self._queued[share.origin]

    def _count(self, share: "BodyShare", more_bytes: int) -> None:
        self._held_bytes += more_bytes
        for owner, _, _ in self._limits.of(*share.origin):
            self._held_by[owner] += more_bytes
            if not self._held_by[owner]:
                del self._held_by[owner]


class BodyShare:
    """The part of a budget that one body holds.

    Attributes:
        waited: Whether the body ever waited for room.
        origin: Its sender and its account.
    """

    def __init__(self, budget: BodyBudget, sender: str, account: str) -> None:
        self._budget = budget
        self._wanted_bytes: int | None = None
        self._granted: asyncio.Future[None]  # of the last claim
        self._asked_s = 0.0
        self._stop: Callable[[], None] | None = None  # while it arrives
        self._paced_bytes = 0  # at the beginning of the last `PACE_BYTES`, as is the time
        self._paced_s = 0.0
        self.held_bytes = 0
        self.place = 0  # in the order of first claims
        self.evicted = False
        self.waited = False
        self.origin = sender, account

    @property
    def waits(self) -> bool:
        """Return whether the body waits for room."""
        return self._wanted_bytes is not None

    @property
    def missing_bytes(self) -> int:
        """Return how much more the body wants."""
        return 0 if self._wanted_bytes is None else self._wanted_bytes - self.held_bytes

    def begin(self, stop: Callable[[], None]) -> None:
        """Note that the body begins to arrive. From now on it may be evicted.

        Args:
            stop: Called at eviction. It ends the reading of the body.
        """
        self._stop = stop
        self._paced_s = _now_s()

    def end(self) -> None:
        """Note that the body has arrived.

        Raises:
            RequestTimeout: It was evicted.
        """
        self._check()
        self._stop = None

    def covers(self, size_bytes: int) -> bool:
        """Return whether a body of this size needs no further claim."""
        return size_bytes <= max(self.held_bytes, UNCOUNTED_BYTES) and not self.evicted

    async def claim(self, size_bytes: int) -> None:
        """Hold ``size_bytes`` in all, or a little more. Waits while they do not fit.

        Raises:
            RequestTimeout: The body was evicted.
        """
        self._check()
        if self.covers(size_bytes):
            return
        self._wanted_bytes = -(-size_bytes // _STEP_BYTES) * _STEP_BYTES
        self._granted, self._asked_s = asyncio.get_running_loop().create_future(), _now_s()
        self._budget._enter(self)
        self.waited = self.waited or self.waits
        await self._granted

    def as_claim(self, now_s: float) -> BodyClaim:
        """Describe the body for the rule."""
        arrives = self._stop is not None and not self.waits
        sender, account = self.origin
        arriving_s = now_s - self._paced_s if arrives else 0.0
        return BodyClaim(sender, self.held_bytes, self._wanted_bytes, arriving_s, account)

    def grant(self) -> None:
        """Hold the wanted bytes. The budget calls this."""
        assert self._wanted_bytes is not None, "only a claimed size is granted"  # noqa: S101
        self.held_bytes, self._wanted_bytes = self._wanted_bytes, None
        now_s = _now_s()
        self._paced_s += now_s - self._asked_s  # time spent waiting for room does not count as slow
        if self.held_bytes >= self._paced_bytes + PACE_BYTES:
            self._paced_bytes, self._paced_s = self.held_bytes, now_s
        if not self._granted.done():  # its task may have been cancelled
            self._granted.set_result(None)

    def evict(self) -> None:
        """End the reading of the body. The budget calls this."""
        assert self._stop is not None, "only a body that arrives is slow"  # noqa: S101
        self.evicted = True
        self._stop()

    def let_wait(self) -> bool:
        """Return whether a body that has arrived may wait for something other than memory.

        If so, its bytes no longer keep other bodies waiting. It must claim no more.
        """
        return self._budget._delay(self)

    def release(self) -> None:
        """Release the held bytes, because the body is no longer in memory."""
        self._budget._leave(self)

    def _check(self) -> None:
        if self.evicted:
            raise RequestTimeout("the body came slowly while others waited for memory (LACHESIS_BODY_BUDGET_BYTES)")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
