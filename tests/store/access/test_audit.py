"""The audit trail in Redis."""

import pytest

from app.store.access import scripts
from app.store.access.audit import AuditStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import ServiceKeys


@pytest.mark.parametrize("own", [0, 1000], ids=["entries of a sender are one", "each has its own"])
async def test_a_repeated_command_adds_nothing(connection: RedisClient, own: int) -> None:
    """Its first reply may have been lost."""

    async def added(sender: str, write: str) -> None:
        entry = f'{{"write":"{write}"}}'
        command = scripts.add_audit_entry(
            ServiceKeys(), most=100, own=own, sender=f"\n{sender}", action="x", entry=entry, write=write
        )
        await connection.run(command)

    for sender, write in (("ann", "a"), ("ann", "a"), ("ann", "b"), ("bob", "c"), ("ann", "b"), ("bob", "c")):
        await added(sender, write)
    counted = [(entry.facts["write"], entry.count) for entry in await AuditStore(connection).before(None, 10)]
    assert counted == ([("c", 1), ("b", 2)] if own == 0 else [("c", 1), ("b", 1), ("a", 1)])
