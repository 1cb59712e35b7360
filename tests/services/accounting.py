"""The books of a run, added up again from its keys."""

import json
from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis

from app.store.keys import RunKeys, parse_lane_name


async def books_of(redis: "Redis", run: str) -> dict[str, Any]:
    """Recount a run from its lanes, buffers, leases and payloads, and check that everything agrees.

    Returns:
        ``queued``, ``buffered`` and ``leased``: the ids of the groups there.
    """
    keys = RunKeys(run)
    queued = await _ids(redis, keys.lanes, keys.lane)
    buffered = await _ids(redis, keys.buffers, keys.buffer)
    leases = await redis.hgetall(keys.leases)
    states = await redis.hgetall(keys.lease_states)
    leased = {group["group_id"] for manifest in leases.values() for group in json.loads(manifest)}
    total = {key.decode(): value.decode() for key, value in (await redis.hgetall(keys.run)).items()}
    held = {group.decode(): entry.decode() for group, entry in (await redis.hgetall(keys.groups)).items()}

    assert leases.keys() == states.keys()
    assert len(queued) + len(buffered) + len(leased) == len(queued | buffered | leased), "a group is in two places"
    assert held.keys() == queued | buffered | leased
    for place, ids in (("queued", queued), ("buffered", buffered), ("leased", leased)):
        assert int(total.get(f"{place}_groups", 0)) == len(ids)
        assert int(total.get(f"{place}_bytes", 0)) == sum(int(held[group].split()[0]) for group in ids)
    dropped = sum(int(count) for count in (await redis.hgetall(keys.dropped)).values())
    delivered = int(total.get("delivered_groups", 0))
    accepted = int(total.get("accepted_groups", 0))
    assert accepted == len(queued) + len(buffered) + len(leased) + delivered + dropped

    unindexed = {group.decode() for group, _ in await redis.zrange(keys.unindexed, 0, -1, withscores=True)}
    expected = held.keys() | unindexed | ({total["latest"]} if "latest" in total else set())
    payloads = {key.decode().rsplit(":", 1)[1] async for key in redis.scan_iter(keys.payload("*"))}
    assert held.keys() <= payloads, "a group without its payload"
    assert payloads <= expected, "a payload that nothing names"
    return {"queued": queued, "buffered": buffered, "leased": leased, "delivered": delivered}


async def _ids(redis: "Redis", catalog: str, key_of: Any) -> set[str]:
    counts: Mapping[bytes, bytes] = await redis.hgetall(catalog)
    found: set[str] = set()
    for name, count in counts.items():
        parse_lane_name(name.decode())
        members = {member.decode() for member in await redis.zrange(key_of(name.decode()), 0, -1)}
        assert len(members) == int(count)
        found |= members
    return found
