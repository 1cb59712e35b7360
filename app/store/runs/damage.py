"""Find and delete the keys of a run if another program has damaged those that name them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from app.store.redis.client import RedisClient
from app.store.redis.keys import PREFIX, RunKeys
from app.store.runs import scripts

_AT_ONCE = 1000  # keys of Redis to look at in one round trip


@dataclass(frozen=True, slots=True)
class Strays:
    """Keys with the name of a run that may be left over.

    Attributes:
        keys: Those that other keys of the run name, such as lanes.
        payloads: Ids of payloads.
    """

    keys: list[bytes]
    payloads: list[bytes]


class DamageStore:
    """Deletes what a run cannot be deleted with, and what nothing names any longer."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def drop(self, run: str) -> bool:
        """Delete keys of a wrong type, and fields that are not numbers, so that the run can be reset. Keep all others.

        Returns:
            Whether a key is gone, so that there may be keys that nothing names any longer.
        """
        keys = RunKeys(run)
        hashes = [keys.lanes, keys.buffers, keys.curricula, *keys.naming_payloads()]
        return bool(await self._connection.run(scripts.drop_damaged(keys, hashes=hashes)))

    async def strays(self, run: str) -> AsyncIterator[Strays]:
        """Yield all keys with the name of the run that could be left over, part by part.

        This looks at the names of all keys in Redis: about a second for a million.
        """
        keys = RunKeys(run)
        own, payloads = keys.called("").encode(), keys.payloads.encode()
        others = {key.encode() for key in (keys.run, keys.events, *keys.all_held())}
        cursor = b"0"
        while True:
            pattern = f"{PREFIX}:*[:{{]{run}[:}}]*"
            cursor, found = await self._connection.call("SCAN", cursor, "MATCH", pattern, "COUNT", _AT_ONCE)
            strays = Strays(
                [key for key in found if key.startswith(own) and key not in others],
                [key.removeprefix(payloads) for key in found if key.startswith(payloads)],
            )
            if strays.keys or strays.payloads:
                yield strays
            if cursor == b"0":
                return

    async def delete_strays(self, run: str, strays: Strays) -> bool:
        """Delete these keys, and mark the payloads for deletion. False, and nothing done, if the run is in use."""
        command = scripts.delete_strays(RunKeys(run), strays=strays.keys, payloads=strays.payloads)
        return bool(await self._connection.run(command))
