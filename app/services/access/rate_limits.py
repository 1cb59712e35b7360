"""Limit what each account and each run sends (`app.core.access.rate_limits`)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from app.core.access.identity import Identity
from app.core.access.rate_limits import Use, costs, limits_of
from app.services.background import Periodic
from app.store.access.rate_limits import LimitStore, of_run
from lachesis.wire.errors import RateLimited, StoreUnavailable
from lachesis.wire.limits import RateLimitSettings, RunLimitSettings

_US = 1_000_000
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Limited:
    """An account or a run with limits: its name in Redis and in messages, and the limits.

    Attributes:
        shared: Whether many senders share them, as those of a run.
    """

    owner: str
    name: str
    limits: RateLimitSettings
    shared: bool = False


@dataclass(slots=True)
class Meter:
    """Counts what a request uses against the limits of its account and its run.

    Before a body has arrived, its announced size counts for the account alone. For the run it counts as one byte.
    Otherwise a sender could use up what all share by announcing bodies that it never sends.
    """

    store: LimitStore
    limited: tuple[Limited, ...]
    _announced_bytes: int = 0
    _arrived: bool = False

    async def begin(self, announced_bytes: int, *, arrived: bool) -> None:
        """Count a request whose body has not been read.

        Args:
            announced_bytes: The size of its body. 1 stands for an unknown size, 0 for no body.
            arrived: Whether the body has arrived.

        Raises:
            RateLimited: A limit is reached.
        """
        self._announced_bytes, self._arrived = announced_bytes, arrived
        await self._count([(one, Use(requests=1, bytes=self._begun_bytes(one))) for one in self.limited])

    async def end_body(self, size_bytes: int) -> None:
        """Count the bytes that `begin` did not count. They have arrived, so they are never refused."""
        more = [(one, Use(bytes=max(0, size_bytes - self._begun_bytes(one)))) for one in self.limited]
        await self._count(more, happened=True)

    async def count(self, use: Use) -> None:
        """Count a use, against all limits or none.

        Raises:
            RateLimited: A limit is reached.
        """
        await self._count([(one, use) for one in self.limited])

    def _begun_bytes(self, limited: Limited) -> int:
        counts_whole = self._arrived or not limited.shared
        return self._announced_bytes if counts_whole else min(1, self._announced_bytes)

    async def _count(self, uses: Sequence[tuple[Limited, Use]], *, happened: bool = False) -> None:
        counted = [(one, cost) for one, use in uses for cost in costs(one.limits, use)]
        if not counted:
            return
        waits_us = await self.store.count([(one.owner, cost) for one, cost in counted], happened=happened)
        longest_us = max(waits_us)
        if longest_us > 0:
            one, cost = counted[waits_us.index(longest_us)]
            raise RateLimited(f"{one.name} has reached {cost.name}={cost.per_s:g}", longest_us / _US)


class RequestLimiter:
    """Knows which runs have limits, so that requests without limits cost nothing."""

    def __init__(self, store: LimitStore) -> None:
        self._store = store
        self._generation: bytes | None = None
        self._runs: Mapping[str, RunLimitSettings] = {}
        self._rates: Mapping[str, RateLimitSettings] = {}  # of the runs that have any
        self._reading = Periodic("reading rate limits", _PAUSE_S, self.refresh)

    async def start(self) -> None:
        """Read the limits of runs, and keep reading until `stop`.

        Raises:
            StoreUnavailable: Redis did not answer.
        """
        await self.refresh()
        self._reading.start()

    async def stop(self) -> None:
        """Stop reading."""
        await self._reading.stop()

    async def refresh(self) -> None:
        """Read the limits of runs if they have changed. Each process does so every second."""
        found = await self._store.of_runs(self._generation)
        if found is not None:
            self._generation, self._runs = found
            rates = {run: limits_of(RateLimitSettings, limits) for run, limits in self._runs.items()}
            self._rates = {run: limits for run, limits in rates.items() if limits is not None}

    async def apply(self, run: str, limits: RunLimitSettings | None) -> None:
        """Apply stored limits of a run in this process now. If Redis does not answer, the next refresh does it."""
        if self._runs.get(run) != limits:
            with suppress(StoreUnavailable):  # the change of the run is done, so its request has succeeded
                await self.refresh()

    def max_connections(self, run: str) -> int | None:
        """Return how many open connections a run may have; None for no limit."""
        limits = self._runs.get(run)
        return None if limits is None else limits.max_connections

    def meter(self, identity: Identity, run: str | None) -> Meter | None:
        """Return what counts a request; None if nothing limits it."""
        of_this_run = None if run is None else self._rates.get(run)
        if of_this_run is None and identity.limits is None:
            return None
        limited = []
        if identity.limits is not None:
            limited.append(Limited(identity.owner, identity.account_name, identity.limits))
        if run is not None and of_this_run is not None:
            limited.append(Limited(of_run(run), f"run {run}", of_this_run, shared=True))
        return Meter(self._store, tuple(limited))
