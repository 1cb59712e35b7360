"""Rate limits in Redis: those of runs, and what is used of them and of those of accounts."""

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from app.core.access.rate_limits import BURST_US, LimitCost, LimitUse, named_limits, used
from app.core.runs.capacity import WaitingGroups
from app.store.access import scripts
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys, ServiceKeys, run_names
from app.store.redis.pipeline import Command
from app.store.redis.scripts import json_text
from app.store.redis.server_time import parse_time_us
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings, RunLimitSettings

_RUN = "run:"
_NO_GENERATION = b"0"  # no run ever had limits
_Limits = TypeVar("_Limits", RateLimitSettings, RunLimitSettings, QueueLimitSettings)

log = logging.getLogger("lachesis.access")


class LimitStore:
    """Reads limits of runs, and counts what accounts and runs use."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection
        self._keys = ServiceKeys()

    async def of_runs(self, seen: bytes | None) -> tuple[bytes, Mapping[str, RunLimitSettings]] | None:
        """Read the limits of all runs that have any.

        Args:
            seen: The generation that is known; None for none.

        Returns:
            The generation as it is stored, and the limits by run; None if nothing has changed since ``seen``.
        """
        generation = await self._connection.call("HGET", self._keys.limits, "generation") or _NO_GENERATION
        if generation == seen:
            return None
        found = await self._connection.call("HGETALL", self._keys.limits)
        generation, limits = found.pop(b"generation", _NO_GENERATION), {}
        for name, text in found.items():
            run = name.decode(errors="replace")[len(_RUN) :]
            try:
                limits[run] = parse_limits(RunLimitSettings, json.loads(text))
            except (ValueError, TypeError):
                log.error("the limits of run %s cannot be read, so it has none: set them again", run)
        return generation, limits

    async def count(self, costs: Sequence[tuple[str, LimitCost]], *, happened: bool = False) -> list[int]:
        """Count a use against limits, all or none.

        Args:
            costs: The owner of each limit (`of_run`, `Identity.owner`), and the cost of the use for it.
            happened: Whether the use cannot wait, because it has happened already.

        Returns:
            How long the use must wait for each limit, microseconds. If it must wait, nothing was counted.
        """
        keys = [self._keys.limit_use(owner, cost.name, cost.per_s) for owner, cost in costs]
        costs_us = [cost.cost_us for _, cost in costs]
        command = scripts.count_use(self._keys, arrivals=keys, burst_us=BURST_US, happened=happened, costs_us=costs_us)
        _, *waits_us = await self._connection.run(command)
        return [int(wait) for wait in waits_us]

    async def used(self, limited: Sequence[tuple[str, RateLimitSettings]]) -> list[list[LimitUse]]:
        """Say how much is used of the limits of each owner."""
        keys = [self._keys.limit_use(owner, *limit) for owner, limits in limited for limit in named_limits(limits)]
        if not keys:
            return [[] for _ in limited]
        time, found = await self._connection.pipeline([("TIME",), ("MGET", *keys)])
        now_us = parse_time_us(time)
        arrivals_us = iter([_arrival_us(value, now_us) for value in found])
        return [
            used(limits, list(islice(arrivals_us, sum(1 for _ in named_limits(limits)))), now_us)
            for _, limits in limited
        ]

    async def queued(self) -> Mapping[str, Mapping[str, WaitingGroups]]:
        """Read what accounts with a limit of that have in the queue, by `LimitedAccount.account_id` and run."""
        runs = run_names(await self._connection.call("ZRANGE", self._keys.runs, 0, -1))
        commands: list[Command] = [("HGETALL", RunKeys(run).token_queues) for run in runs]
        queued: defaultdict[str, dict[str, WaitingGroups]] = defaultdict(dict)
        for run, found in zip(runs, await self._connection.pipeline(commands), strict=True):
            for account_id, text in found.items():
                queued[account_id.decode()][run] = WaitingGroups(*map(int, text.split()))
        return queued


def _arrival_us(stored: bytes | None, now_us: int) -> int:
    """Parse the stored use of a limit; return its arrival, us.

    It is 0 if nothing is stored, or if it was written in the future. Earlier builds stored only the arrival.
    """
    arrival, *written = map(int, (stored or b"0").split())
    return 0 if written and written[0] > now_us else arrival


def of_run(run: str) -> str:
    """Return the owner of the limits of a run."""
    return f"run:{run}"


def limits_text(limits: RunLimitSettings | None) -> str:
    """Write limits for Redis; none are empty text."""
    return "" if limits is None else json_text(limits.model_dump(exclude_none=True))


def parse_limits(kind: type[_Limits], said: Mapping[str, Any]) -> _Limits:
    """Read limits as they are stored.

    Raises:
        ValueError: They are not such limits, or a newer version of the service has stored limits that this one lacks.
    """
    if unknown := set(said) - kind.model_fields.keys():
        raise ValueError(f"unknown limits: {', '.join(sorted(unknown))}")
    return kind.model_validate(said)
