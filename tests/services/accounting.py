"""The books of a run, added up again from its keys."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from redis.asyncio import Redis

from app.store.groups.entries import StoredGroup, group_name, parse_entry, parse_known
from app.store.redis.keys import NONE, PROCESSES, SERVICE, RunKeys, parse_lane_name
from lachesis.wire.states import DROP_REASONS


async def keys_of_runs(redis: Redis) -> list[bytes]:
    """Return all keys but those that say which API processes are alive."""
    return [key for key in await redis.keys("*") if key.decode() not in (SERVICE, PROCESSES)]


async def books_of(redis: "Redis", run: str) -> dict[str, Any]:
    """Recount a run from its lanes, buffers, leases, kept batches and payloads, and check that everything agrees.

    Returns:
        ``queued``, ``buffered``, ``leased`` and ``kept``: the ids of the groups there; how many were ``delivered``;
        ``dropped``: how many, by reason; ``tokens``: those of all groups by state, with what waits as ``queued``.
    """
    keys = RunKeys(run)
    total = {key.decode(): value.decode() for key, value in (await redis.hgetall(keys.run)).items()}
    held = {group: parse_entry(entry) for group, entry in (await _texts(redis, keys.groups)).items()}
    places = {
        "queued": await _waiting(redis, keys.lanes, keys.lane, held),
        "buffered": await _waiting(redis, keys.buffers, keys.buffer, held),
        "leased": await _in_batches(redis, keys.leases, held),
        "kept": await _in_batches(redis, keys.kept, held),
    }
    ids = [group for groups in places.values() for group in groups]
    assert len(ids) == len(set(ids)), "a group is in two places"
    assert held.keys() == set(ids)
    replayed = {place: await _replayed(redis, key) for place, key in (("leased", keys.leases), ("kept", keys.kept))}
    pinned = {group: int(count) for group, count in (await _texts(redis, keys.replayed)).items()}
    assert pinned == Counter(group for groups in replayed.values() for group, _ in groups)
    for place, groups in places.items():
        more = sum(size for _, size in replayed["kept"]) if place == "kept" else 0
        assert int(total.get(f"{place}_bytes", 0)) == sum(held[group].payload_bytes for group in groups) + more
        if place != "kept":  # those are delivered
            assert int(total.get(f"{place}_groups", 0)) == len(groups)
    assert (await redis.hgetall(keys.leases)).keys() == (await redis.hgetall(keys.lease_states)).keys()
    kept = await redis.hkeys(keys.kept)
    assert set(await redis.zrange(keys.kept_steps, 0, -1)) == set(kept)
    assert set(await redis.hkeys(keys.kept_leases)) == set(kept)

    dropped: dict[str, int] = {}
    for name, count in (await _texts(redis, keys.dropped)).items():
        reason, environment = name.split(":")
        assert environment == NONE or int(environment) >= 0
        assert reason in DROP_REASONS
        dropped[reason] = dropped.get(reason, 0) + int(count)
    delivered = int(total.get("delivered_groups", 0))
    assert delivered >= len(places["kept"])
    outstanding = sum(len(groups) for place, groups in places.items() if place != "kept")
    assert int(total.get("accepted_groups", 0)) == outstanding + delivered + sum(dropped.values())

    tokens = await _check_ledger(redis, keys, places, held)
    await _check_token_queues(redis, keys, places["queued"] | places["buffered"], held)
    await _check_lane_heads(redis, keys)
    await _check_versions(redis, keys, places["queued"] | places["buffered"], held)
    await _check_memory(redis, keys, held)
    await _check_payloads(redis, keys, held, total.get("latest"))
    return {**places, "delivered": delivered, "dropped": dropped, "tokens": tokens}


async def _check_ledger(
    redis: "Redis", keys: RunKeys, places: Mapping[str, set[str]], held: Mapping[str, StoredGroup]
) -> dict[str, int]:
    """Check for each environment that generated tokens are where its groups are; return the tokens by state."""
    ledger = {name: int(tokens) for name, tokens in (await _texts(redis, keys.ledger)).items()}
    assert all(tokens >= 0 for tokens in ledger.values())
    found: Counter[str] = Counter()
    for environment in {name.split(":")[1] for name in ledger} | {_owner(held[group]) for group in held}:
        own = {name.split(":")[0]: tokens for name, tokens in ledger.items() if name.split(":")[1] == environment}
        assert own.keys() <= {"generated", "leased", "trained", *DROP_REASONS}
        waiting, leased, kept = (
            sum(held[group].weight.tokens for group in groups if _owner(held[group]) == environment)
            for groups in (places["queued"] | places["buffered"], places["leased"], places["kept"])
        )
        assert own.get("leased", 0) == leased
        assert own.get("trained", 0) >= kept
        assert own.get("generated", 0) == waiting + sum(own.values()) - own.get("generated", 0)
        found.update({**own, "queued": waiting})
    return dict(found)


def _owner(entry: StoredGroup) -> str:
    return NONE if entry.lane[0] is None else str(entry.lane[0])


async def _texts(redis: "Redis", key: str) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in (await redis.hgetall(key)).items()}


async def books_once_settled(redis: "Redis", run: str, timeout_s: float = 60.0) -> dict[str, Any]:
    """Recount a run that a service may still be working on: it acknowledges a batch after its answer has gone out."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        try:
            return await books_of(redis, run)
        except (AssertionError, KeyError):
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.1)


async def _waiting(
    redis: "Redis", catalog: str, key_of: Callable[[str], str], held: Mapping[str, StoredGroup]
) -> set[str]:
    found: set[str] = set()
    for name, count in (await _texts(redis, catalog)).items():
        members = {member.decode() for member in await redis.zrange(key_of(name), 0, -1)}
        assert len(members) == int(count) > 0
        assert {held[group].lane for group in members} == {parse_lane_name(name)}
        found |= members
    return found


async def _check_lane_heads(redis: "Redis", keys: RunKeys) -> None:
    """Lanes with groups, and no others, are in the order of their oldest groups."""
    oldest = {
        name: await redis.zrange(keys.lane(name), 0, 0, withscores=True) for name in await _texts(redis, keys.lanes)
    }
    found = await redis.zrange(keys.lane_heads, 0, -1, withscores=True)
    assert {name.decode(): arrival for name, arrival in found} == {name: own[0][1] for name, own in oldest.items()}


async def _check_token_queues(
    redis: "Redis", keys: RunKeys, waiting: set[str], held: Mapping[str, StoredGroup]
) -> None:
    """What counts for a token waits, and is added up."""
    groups, sizes = Counter[str](), Counter[str]()
    for group, text in (await _texts(redis, keys.token_groups)).items():
        token, size_bytes = text.split()
        assert group in waiting, "a group that has left counts for its token"
        assert int(size_bytes) == held[group].payload_bytes
        groups[token] += 1
        sizes[token] += int(size_bytes)
    assert await _texts(redis, keys.token_queues) == {token: f"{groups[token]} {sizes[token]}" for token in groups}


async def _in_batches(redis: "Redis", catalog: str, held: Mapping[str, StoredGroup]) -> set[str]:
    """Those from the queue; groups that were replayed were delivered before."""
    every = [group for manifest in (await _texts(redis, catalog)).values() for group in json.loads(manifest)]
    groups = [group for group in every if "replayed" not in group]
    for group in groups:
        entry = held[group["group_id"]]
        assert (group["payload_bytes"], group["checksum"]) == (entry.payload_bytes, entry.checksum)
        assert (group["environment"], group["size"]) == entry.lane
        assert (group["policy_version"], group["given_id"]) == (entry.policy_version, entry.given_id)
    ids = {group["group_id"] for group in groups}
    assert len(ids) == len(groups), "a group is in two batches"
    return ids


async def _replayed(redis: "Redis", catalog: str) -> list[tuple[str, int]]:
    """The groups that batches have from the replay buffer, and their bytes."""
    every = [group for manifest in (await _texts(redis, catalog)).values() for group in json.loads(manifest)]
    return [(group["group_id"], group["payload_bytes"]) for group in every if "replayed" in group]


async def _check_versions(redis: "Redis", keys: RunKeys, waiting: set[str], held: Mapping[str, StoredGroup]) -> None:
    """Those that wait and name a version are indexed by it, and no other."""
    found = {group.decode(): version for group, version in await redis.zrange(keys.versions, 0, -1, withscores=True)}
    versions = {group: held[group].policy_version for group in waiting}
    assert found == {group: version for group, version in versions.items() if version is not None}


async def _check_memory(redis: "Redis", keys: RunKeys, held: Mapping[str, StoredGroup]) -> None:
    """Check that held groups are known, and that what is known of others, and of batches, will be forgotten."""
    known = {name: parse_known(text) for name, text in (await _texts(redis, keys.known)).items()}
    assert len({one.group_id for one in known.values()}) == len(known), "a group has two names"
    for group, entry in held.items():
        name = group if entry.given_id is None else group_name(entry.given_id)
        assert known[name].group_id == group, "a held group whose repetition is unseen"
    left = [item.decode().split() for item in await redis.lrange(keys.left, 0, -1)]
    assert [int(ms) for ms, *_ in left] == sorted(int(ms) for ms, *_ in left), "groups are forgotten in order"
    until = {name: int(ms) for ms, *names in left for name in names}
    for name, one in known.items():
        if one.ended is None:
            assert one.group_id in held, "a group that nobody would forget"
        else:
            assert until[name] >= one.ended.clock_ms, "a group that would be forgotten too early, or never"
    annotations = await redis.hgetall(keys.annotations)
    assert {field.decode().partition(" ")[0] for field in annotations} <= known.keys(), "annotations of no group"
    annotation_bytes = sum(len(values) for field, values in annotations.items() if b" " in field)
    assert int(await redis.hget(keys.run, "annotation_bytes") or 0) == annotation_bytes
    history = await _texts(redis, keys.history)
    assert {ended.decode() for ended in await redis.zrange(keys.ended, 0, -1)} == history.keys()


async def _check_payloads(redis: "Redis", keys: RunKeys, held: Mapping[str, StoredGroup], latest: str | None) -> None:
    """What is held by the run, its replay buffer or a batch has its payload; any other is garbage that is known of."""
    unreferenced = {
        group.decode(): score for group, score in await redis.zrange(keys.unreferenced, 0, -1, withscores=True)
    }
    named = {name for key in keys.naming_payloads() for name in await _texts(redis, key)}
    assert not {group for group, score in unreferenced.items() if score >= 0} & named, "held, and yet only announced"
    if not await redis.exists(keys.replay):
        assert not unreferenced.keys() & held.keys(), "a group that is held and yet garbage"
    for token in await redis.smembers(keys.marked_hashes):
        unreferenced |= dict.fromkeys(await _texts(redis, keys.marked_hash(token.decode())), -1)
    payloads = {key.decode().rsplit(":", 1)[1] async for key in redis.scan_iter(keys.payload("*"))}
    assert named <= payloads, "a group without its payload"
    assert payloads <= named | unreferenced.keys() | ({latest} if latest else set()), "a payload that nothing names"
