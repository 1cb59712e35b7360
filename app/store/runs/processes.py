"""Know which API processes are alive, and which of them maintains runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.store.redis.client import RedisClient
from app.store.redis.keys import ServiceKeys, run_names
from app.store.runs import scripts

_TAKE_OVER_MS = 2000  # processes give signs of life every second, so another one takes over within 3 s
_FORGOTTEN_MS = 600_000


@dataclass(frozen=True, slots=True)
class Maintained:
    """The work of the process that maintains runs.

    Attributes:
        term: The number of its term. A script that names an older one changes nothing.
        due: The names of the runs that need maintenance now, sorted.
    """

    term: int
    due: Sequence[str]


class ProcessStore:
    """Records API processes."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection
        self._keys = ServiceKeys()

    async def beat(self, process: str) -> Maintained | None:
        """Note that a process is alive; return what it maintains, or None if another process does that.

        Invalid names of runs are left out. They must not stop the maintenance of the other runs.
        """
        command = scripts.beat_process(
            self._keys, process=process, patience_ms=_TAKE_OVER_MS, forgotten_ms=_FORGOTTEN_MS
        )
        reply = await self._connection.run(command)
        if not reply:
            return None
        term, *due = reply
        return Maintained(int(term), run_names(due))

    async def remove(self, process: str) -> None:
        """Note that a process ends; another one may maintain runs at once."""
        await self._connection.run(scripts.remove_process(self._keys, process=process))
