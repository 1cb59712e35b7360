"""The store over the session's real Redis, and the few moves its tests are made of."""

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from redis.asyncio import Redis

from app.core.batches.leases import Lease, LeasedGroup
from app.core.environments.record import EnvironmentRecord
from app.core.runs.settings import Policy, RunConfig
from app.core.runs.view import RunView
from app.store.batches.store import BatchStore
from app.store.environments.members import MemberStore
from app.store.environments.store import EnvironmentStore
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import EndedGroup, PendingGroup, Placement, Preconditions, parse_known
from app.store.groups.garbage import GarbageStore
from app.store.groups.known import KnownGroupStore
from app.store.groups.listing import GroupListStore
from app.store.groups.store import GroupStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys, lane_name
from app.store.runs.store import RunStore
from app.store.runs.tick import PendingHeartbeats, Tick
from tests.services.accounting import books_of

RUN = "run"
KEYS = RunKeys(RUN)
CONFIG = RunConfig(batch_size=4, max_token_len=512, num_steps=100)
MATH = EnvironmentRecord(0, "math", "math_0", 4, 512, 1.0, None, None, registered_ms=0)
LASTING_MS = 3_600_000
NO_HEARTBEATS = PendingHeartbeats()


def encoded(mark: int = 1, *, given: str | None = None, version: int | None = None) -> EncodedGroup:
    """A stand-in for a group of two sequences; as many bytes as its mark says, and a few."""
    return EncodedGroup(2, 0, b"columns" + b"x" * mark, given, version)


@dataclass(frozen=True, slots=True)
class Store:
    """One run in Redis."""

    redis: Redis
    connection: RedisClient
    runs: RunStore
    groups: GroupStore
    known_groups: KnownGroupStore
    garbage: GarbageStore
    batches: BatchStore
    environments: EnvironmentStore
    members: MemberStore

    async def preconditions(self, **limits: Any) -> Preconditions:
        """What admits groups now: names last an hour."""
        return Preconditions(**{"epoch": (await self.view()).epoch, "dedup_ms": LASTING_MS} | limits)

    async def admit(
        self, *groups: EncodedGroup, ids: Sequence[str] = (), place: Placement | None = None, **limits: Any
    ) -> list[bool] | None:
        """Admit groups on present preconditions, under payload ids of their own unless given; queued for environment 0.

        Returns:
            Which of them are new.
        """
        submission = [
            PendingGroup(
                ids[n] if ids else uuid.uuid4().hex, group, place or Placement(0, policy_version=group.policy_version)
            )
            for n, group in enumerate(groups)
        ]
        stored = await self.groups.admit(RUN, [submission], await self.preconditions(**limits))
        (result,) = stored.results
        if isinstance(result, Exception):
            raise result
        return None if result is None else [not outcome.repeated for outcome in result]

    async def rewind(self, step: int, kept: Sequence[Lease], held: Sequence[tuple[Lease, Lease]] = ()) -> bool:
        """Hand kept batches out again under these leases, and held ones: as seen, and from now on."""
        leases = [*held, *((None, new) for new in kept)]
        return await self.batches.rewind(RUN, step, await self.view(), leases, 0, "request")

    async def take(self, *group_ids: str, groups: Sequence[LeasedGroup] = (), **fields: Any) -> Lease:
        """Take queued groups into a batch that is held; as they are now, or as they were when they were looked at."""
        view = await self.view()
        groups = groups or await self.leased(group_ids)
        fields = {"worker": "host/1/x", "delivery_count": 1, "relaxed": False, "lease_id": "lease"} | fields
        lease = Lease(f"batch{view.step + 1}", "held", step=view.step + 1, **fields)
        assert await self.batches.commit(
            RUN,
            lease,
            groups,
            epoch=view.epoch,
            policy_version=view.policy_version,
            seen_debts=view.debts,
            debts={},
            clock_ms=view.clock_ms,
        )
        return lease

    async def leased(self, group_ids: Sequence[str]) -> list[LeasedGroup]:
        """Describe queued groups as a batch has them."""
        groups = []
        for group_id, entry in zip(group_ids, await self.groups.entries(RUN, group_ids), strict=True):
            assert entry is not None
            arrival = await self.redis.zscore(KEYS.lane(lane_name(*entry.lane)), group_id)
            groups.append(
                LeasedGroup(
                    group_id,
                    int(arrival),
                    *entry.lane,
                    entry.payload_bytes,
                    entry.checksum,
                    entry.accepted_ms,
                    entry.policy_version,
                    entry.given_id,
                    tokens=entry.weight.tokens,
                )
            )
        return groups

    async def acknowledge(self, *leases: Lease, keep: bool = False) -> int:
        """End leases. The history of their groups is known for an hour."""
        ended = await self.batches.acknowledge(RUN, leases, keep=keep, remembered_ms=LASTING_MS)
        return len(ended.batches)

    async def view(self) -> RunView:
        """Read the run."""
        return await self.runs.view(RUN)

    async def history(self, group_id: str) -> EndedGroup:
        """Return the end of a group that has left."""
        known = map(parse_known, map(bytes.decode, await self.redis.hvals(KEYS.known)))  # type: ignore[misc]
        (ended,) = [one.ended for one in known if one.group_id == group_id]
        assert ended is not None
        return ended

    async def batch_of(self, ended: EndedGroup) -> str | None:
        """Return the id of the batch that a group was in when it left."""
        assert ended.step is not None
        (batch_id,) = await GroupListStore(self.connection).batches_of(RUN, [(ended.step, ended.clock_ms)])
        return batch_id

    async def pass_time(self, ms: int) -> None:
        """Move the run clock on."""
        await self.redis.hincrby(KEYS.run, "clock_ms", ms)  # type: ignore[misc]

    async def tick(self, heard: PendingHeartbeats = NO_HEARTBEATS) -> Tick:
        """Tick after signs of life from ``heard``."""
        await self.runs.record_heartbeats({RUN: heard})
        return await self.runs.tick(RUN)

    async def books(self) -> dict[str, Any]:
        """Recount the run."""
        return await books_of(self.redis, RUN)

    async def versions(self) -> dict[str, int]:
        """Return the ids and versions of the groups that wait and name a version."""
        found = await self.redis.zrange(KEYS.versions, 0, -1, withscores=True)
        return {group_id.decode(): int(version) for group_id, version in found}

    async def payloads(self) -> set[str]:
        """Return the ids of the payloads there are."""
        return {key.decode().rsplit(":", 1)[1] async for key in self.redis.scan_iter(KEYS.payload("*"))}


@pytest.fixture
async def connection(redis_url: str, redis_client: Redis) -> AsyncIterator[RedisClient]:
    opened = RedisClient(redis_url, patience_s=5.0)
    yield opened
    await opened.aclose()


@pytest.fixture
async def store(connection: RedisClient, redis_client: Redis) -> Store:
    """A run with a configuration and one environment, 0, whose groups are of four sequences."""
    runs, groups, batches = RunStore(connection, LASTING_MS), GroupStore(connection), BatchStore(connection)
    environments, members = EnvironmentStore(connection), MemberStore(connection)
    known, garbage = KnownGroupStore(connection, groups), GarbageStore(connection)
    made = Store(redis_client, connection, runs, groups, known, garbage, batches, environments, members)
    await made.runs.announce(RUN)
    assert await made.runs.put(RUN, CONFIG, Policy(), 0)
    assert await made.environments.put(RUN, MATH, (await made.view()).epoch)
    return made
