"""The audit trail in Redis: one stream, bounded by a number of entries."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.store.access import scripts
from app.store.redis.client import RedisClient
from app.store.redis.keys import ServiceKeys
from app.store.redis.scripts import json_text


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of the trail.

    Attributes:
        entry_id: Its id in the stream: ``MILLISECONDS-NUMBER``, by the clock of Redis.
        facts: What was recorded.
        count: How many requests it stands for. It describes the newest.
    """

    entry_id: str
    facts: Mapping[str, Any]
    count: int = 1

    @property
    def at_s(self) -> float:
        """When it was recorded, seconds since 1970."""
        return int(self.entry_id.partition("-")[0]) / 1000


class AuditStore:
    """Adds and reads entries."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection
        self._keys = ServiceKeys()

    async def add(self, facts: Mapping[str, Any], most: int, own: int, sender: str, action: str) -> None:
        """Add an entry, even if the memory of Redis is full. The oldest entries beyond ``most`` go.

        Beyond ``own`` entries of a sender in an hour, equal actions of the sender are one entry with a count.
        """
        command = scripts.add_audit_entry(
            self._keys,
            most=most,
            own=own,
            sender=f"\n{sender}",
            action=action,
            entry=json_text(dict(facts)),
            write=uuid.uuid4().hex,
        )
        await self._connection.run(command)

    async def before(self, entry_id: str | None, count: int) -> list[StoredEntry]:
        """Read entries, newest first.

        Args:
            entry_id: Read entries older than this one. None means from the newest one.
            count: Maximum number of entries.
        """
        if entry_id is not None and not entry_id.strip("0-"):
            return []  # Redis refuses to read what is older than the smallest id
        newest = "+" if entry_id is None else f"({entry_id}"
        found = await self._connection.call("XREVRANGE", self._keys.audit, newest, "-", "COUNT", count)
        return [StoredEntry(name.decode(), json.loads(fields[1]), int((*fields, 1)[3])) for name, fields in found]
