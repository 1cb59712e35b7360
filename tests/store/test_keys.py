"""The table in `app/store/keys.py` is what is in Redis, key by key, with its types."""

import re
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from app.core.leasing import Lease, LeasedGroup, LeaseState
from app.core.model import DropReason, Environment, PlannedGroup, RunConfig
from app.store import keys
from app.store.batches import BatchStore
from app.store.codec import EncodedGroup, checksum
from app.store.connection import Connection
from app.store.groups import GroupStore, Placement, Submission
from app.store.runs import RunStore

RUN = "run"
MATH = Environment(0, "math", "math_0", 4, 512, 1.0, None, None, connected=True, registered_ms=0)


def table() -> dict[str, str]:
    """The type of each key, by a pattern of its name."""
    rows = re.findall(r"^\| `(\S+)` \| (\w+) \|", keys.__doc__ or "", re.M)
    assert rows
    return {
        re.sub(r"\{\w+\}|RUN|GROUP", "[^:]+", name).replace("…", rf"{keys.PREFIX}:\{{[^:]+\}}"): kind
        for name, kind in rows
    }


@pytest.fixture
async def connection(redis_url: str, redis_client: Redis) -> AsyncIterator[Connection]:
    opened = Connection(redis_url, patience_s=5.0)
    yield opened
    await opened.aclose()


async def submit(groups: GroupStore, group_id: str, *, buffered: bool = False) -> None:
    submission = Submission(group_id, EncodedGroup(2, 0, b"columns"))
    assert await groups.admit(RUN, [submission], [Placement(0, buffered)], None)


async def test_every_key_is_in_the_table_and_every_row_of_the_table_is_a_key(
    connection: Connection, redis_client: Redis
) -> None:
    runs, groups, batches = RunStore(connection), GroupStore(connection), BatchStore(connection)
    seen: dict[str, str] = {}

    async def look() -> None:
        async for key in redis_client.scan_iter("*"):
            seen[key.decode()] = str(await redis_client.type(key), "ascii")  # type: ignore[arg-type]

    await runs.announce(RUN)
    await runs.register(RUN, RunConfig(2, 512, "group", "project", "checkpoints", 10, 0, 100))
    assert await runs.put_environment(RUN, MATH, (await runs.view(RUN)).epoch)
    await runs.tick(RUN, "host/1/x", {0})
    for group_id, buffered in (("taken", False), ("lost", False), ("waits", True)):
        await submit(groups, group_id, buffered=buffered)
    await look()
    leased = LeasedGroup("taken", 1, 0, 2, 7, checksum(b"columns"), 0)
    view = await runs.view(RUN)
    lease = Lease("batch", LeaseState.SENDING, "host/1/x", 1, view.step + 1, relaxed=False)
    assert await batches.commit(RUN, lease, [leased], epoch=view.epoch, debts={}, clock_ms=view.clock_ms)
    assert await groups.drop(RUN, PlannedGroup(2, "lost", 0, 2), DropReason.PAYLOAD_LOST)
    await look()
    await runs.reset(RUN, "token")
    await look()

    expected = table()
    for key, kind in seen.items():
        assert [declared for pattern, declared in expected.items() if re.fullmatch(pattern, key)] == [kind], key
    assert [pattern for pattern in expected if not any(re.fullmatch(pattern, key) for key in seen)] == []


@pytest.mark.parametrize("passed_ms", [-3_600_000, 3_600_000])
async def test_the_clock_that_a_view_shows_is_clamped_as_the_scripts_clamp_it(
    connection: Connection, redis_client: Redis, passed_ms: int
) -> None:
    """The rule is written down twice: a view must not write, so it works the clock out by itself."""
    runs = RunStore(connection)
    seconds, _ = await redis_client.time()
    clock = {"clock_ms": 1_000_000, "time_ms": seconds * 1000 - passed_ms}
    await redis_client.hset(keys.RunKeys(RUN).run, mapping=clock)  # type: ignore[arg-type]
    shown_ms = (await runs.view(RUN)).clock_ms
    assert shown_ms == (await runs.tick(RUN, "host/1/x", ())).clock_ms
    assert shown_ms == 1_000_000 + (30_000 if passed_ms > 0 else 0)
