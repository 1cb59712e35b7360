"""Tell cheaply whether anything in runs has changed that readers of their status may want to see."""

import hashlib
from collections.abc import Sequence

from app.store.redis.client import RedisClient
from app.store.redis.keys import CurriculumKeys, RunKeys
from app.store.redis.pipeline import Command
from app.store.runs.clock import CLOCK_FIELDS

_CLOCK = frozenset(name.encode() for name in CLOCK_FIELDS)
_DIGEST_BYTES = 8


class RevisionStore:
    """Reads the revisions of runs: short texts that differ if something has changed.

    A revision covers what came, waits and left, batches, events, signs of life of members, the replay buffer and
    curricula. What changes by time alone it does not cover.
    """

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection
        self._curricula: dict[str, list[bytes]] = {}

    async def read(self, runs: Sequence[str]) -> dict[str, str]:
        """Return the revision of each run, in one round trip whose cost hardly depends on the size of a run."""
        asked = {run: self._commands(RunKeys(run), self._curricula.get(run, [])) for run in runs}
        replies = iter(await self._connection.pipeline([one for commands in asked.values() for one in commands]))
        found = {}
        for run, commands in asked.items():
            state, *others = (next(replies) for _ in commands)
            curricula = sorted(others[0])
            self._curricula[run] = curricula
            facts = sorted((name, value) for name, value in state.items() if name not in _CLOCK)
            digest = hashlib.blake2b(repr((facts, curricula, others[1:])).encode(), digest_size=_DIGEST_BYTES)
            found[run] = digest.hexdigest()
        return found

    def keep_only(self, runs: Sequence[str]) -> None:
        """Forget all runs but these."""
        self._curricula = {run: self._curricula[run] for run in runs if run in self._curricula}

    def _commands(self, keys: RunKeys, curricula: Sequence[bytes]) -> list[Command]:
        known = [CurriculumKeys(keys, one.decode()) for one in curricula]
        return [
            ("HGETALL", keys.run),
            ("HVALS", keys.curricula),
            ("HGETALL", keys.replay),
            ("ZRANGE", keys.members_heard, 0, 0, "REV", "WITHSCORES"),
            ("XREVRANGE", keys.events, "+", "-", "COUNT", 1),
            *(("HGETALL", one.curriculum) for one in known),
            *(("HLEN", one.part("items")) for one in known),
        ]
