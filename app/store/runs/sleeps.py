"""Tell whether something may have happened in a run, without reading it."""

from collections.abc import Sequence

from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys

Sleep = tuple[bytes | None, ...]
"""Identifies the sleep of a run (`lua/runs/fall_asleep.lua`), and what may change without an end of it."""

_FIELDS = ("asleep_ms", "time_ms", "clock_ms", "epoch", "scarce")


class SleepStore:
    """Reads which runs sleep."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def of(self, runs: Sequence[str]) -> dict[str, Sleep | None]:
        """Identify the sleeps of runs, in one round trip; None for a run that is awake.

        While the sleep of a run stays the same, its metrics change only with its clock. A script that writes anything
        else advances the clock, or begins an epoch. Replay buffers and curricula change without waking their run.

        Raises:
            StoreRefused: A key of one of them is of another type.
        """
        replies = await self._connection.pipeline([("HMGET", RunKeys(run).run, *_FIELDS) for run in runs])
        return {run: None if reply[0] is None else tuple(reply) for run, reply in zip(runs, replies, strict=True)}
