"""Delete payloads that nothing names: announced or written and never indexed, or of groups that have left."""

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

from app.store.groups import scripts
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Command

_AT_ONCE = 500  # payloads checked per round trip; Redis serves no other request during that time


class GarbageStore:
    """Marks payloads that stay pending too long, and deletes marked payloads."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by run

    async def mark_abandoned(self, run: str, before_ms: int) -> int:
        """Mark payloads that have been pending since before a run clock; `delete_marked` then deletes them."""
        command = scripts.mark_abandoned_payloads(RunKeys(run), before_ms=before_ms, most=_AT_ONCE)
        return int(await self._connection.run(command))

    async def delete_marked(self, run: str) -> int:
        """Delete the marked payloads that nothing names; returns how many."""
        async with self._locks.setdefault(run, asyncio.Lock()):
            return await self._delete_marked(RunKeys(run))

    async def _delete_marked(self, keys: RunKeys) -> int:
        command = scripts.delete_marked_payloads(keys, naming=keys.naming_payloads(), most=_AT_ONCE)
        removed = 0
        while True:
            (looked_at, deleted), tokens = await self._connection.pipeline([command, ("SMEMBERS", keys.marked_hashes)])
            if not looked_at:
                break
            removed += deleted
        for token in tokens:
            removed += await self._delete_marked_hash(keys, token)
        return removed

    async def _delete_marked_hash(self, keys: RunKeys, token: bytes) -> int:
        """Delete the payloads that only a marked hash names, then the hash. If interrupted, it starts again."""
        marked_hash, naming = keys.marked_hash(token.decode(errors="replace")), keys.naming_payloads()
        removed, cursor = 0, b"0"
        removal: list[Command] = []
        while True:
            find = scripts.scan_marked_hash(keys, marked_hash=marked_hash, naming=naming, cursor=cursor, about=_AT_ONCE)
            *_, (cursor, *unnamed) = await self._connection.pipeline([*removal, find])
            removed += len(unnamed)
            removal = _unlink(keys, unnamed)
            if cursor == b"0":
                break
        await self._connection.pipeline([*removal, ("UNLINK", marked_hash), ("SREM", keys.marked_hashes, token)])
        return removed


def _unlink(keys: RunKeys, unnamed: Sequence[bytes]) -> list[Command]:
    """Remove payloads that nothing names: none of these can be named again."""
    return [("UNLINK", *(keys.payloads.encode() + one for one in unnamed))] if unnamed else []
