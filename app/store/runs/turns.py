"""Let API processes take turns in a run. What a turn is for is safe without it: it expires, and may be lost."""

from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.runs import scripts

TURN_MS = 3000
"""How long a process has the turn without asking again. Others wait this long for a process that died."""

GRANTED = b"turn granted"
"""What a process that listens hears when it gets the turn. It may hear this late, after the turn has expired."""

GRANTED_AND_WANTED = b"turn granted and wanted"
"""What it hears when it gets the turn while another process waits for it."""

WANTED = b"turn wanted"
"""What it hears when it has the turn and another process begins to wait for it."""

NEWS = frozenset({GRANTED, GRANTED_AND_WANTED, WANTED})


class TurnStore:
    """Hands the turn from process to process."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def ask(self, run: str, worker: str) -> tuple[bool, bool]:
        """Ask for the turn, or to keep it; returns whether the process has it, and whether others wait for it."""
        command = scripts.ask_turn(RunKeys(run), worker=worker, turn_ms=TURN_MS)
        has_turn, waiting = await self._connection.run(command)
        return bool(has_turn), waiting > 0

    async def look(self, run: str) -> tuple[str | None, bool]:
        """Read which process has the turn, None if none has, and whether others wait for it."""
        keys = RunKeys(run)
        holder, waiting = await self._connection.pipeline([("GET", keys.turn), ("LLEN", keys.turn_queue)])
        return None if holder is None else str(holder.decode()), waiting > 0

    async def pass_on(self, run: str, worker: str, *, again: bool) -> bool:
        """Give the turn to the next process, or give up waiting for it.

        Args:
            run: The run's name.
            worker: The process that has the turn, or waits for it.
            again: Whether it waits for the turn again. Then it keeps the turn if no other waits.

        Returns:
            Whether another process has the turn now.
        """
        command = scripts.pass_turn(RunKeys(run), worker=worker, turn_ms=TURN_MS, again=again)
        return bool(await self._connection.run(command))
