"""Read clocks by the rule of ``lua/lib/clock.lua``, without writing them down."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.store.redis.keys import SERVICE
from app.store.redis.pipeline import Command
from app.store.redis.server_time import parse_time_us

CLOCK_FIELDS = ("clock_ms", "time_ms", "asleep_ms")
"""The fields of a run's hash that `run_clock` needs."""

CLOCK_COMMANDS: tuple[Command, Command] = (("TIME",), ("HMGET", SERVICE, "clock_ms", "time_ms"))
"""The commands whose replies `Now` reads."""

_LONGEST_STEP_MS = 3000


class Now:
    """The time of Redis and the service clock, at one moment.

    Attributes:
        time_ms: The time of Redis, milliseconds.
        service_ms: The service clock, milliseconds: time in which any API process was alive.
    """

    __slots__ = ("service_ms", "time_ms")

    def __init__(self, time: Sequence[bytes], service: Sequence[bytes | None]) -> None:
        self.time_ms = parse_time_us(time) // 1000
        clock_ms, time_ms = service
        self.service_ms = self._clock_at(int(clock_ms or 0), self.time_ms if time_ms is None else int(time_ms))

    def run_clock(self, run: Mapping[str, Any]) -> int:
        """Return a run's clock, milliseconds, from its `CLOCK_FIELDS`; those that are not there are left out."""
        clock_ms = int(run.get("clock_ms", 0))
        if "asleep_ms" in run:
            return clock_ms + max(0, self.service_ms - int(run["asleep_ms"]))
        return self._clock_at(clock_ms, int(run.get("time_ms", self.time_ms)))

    def run_clock_of(self, fields: Sequence[bytes | None]) -> int:
        """Return a run's clock from the values of its `CLOCK_FIELDS`."""
        named = zip(CLOCK_FIELDS, fields, strict=True)
        return self.run_clock({name: value for name, value in named if value is not None})

    def _clock_at(self, clock_ms: int, last_ms: int) -> int:
        return clock_ms + min(max(self.time_ms - last_ms, 0), _LONGEST_STEP_MS)
