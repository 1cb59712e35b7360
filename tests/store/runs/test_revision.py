"""The revision of a run stays while only its clock goes on."""

import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from app.store.runs.clock import CLOCK_FIELDS
from app.store.runs.revision import RevisionStore
from tests.store.conftest import KEYS, RUN, Store, encoded

pytestmark = pytest.mark.usefixtures("store")


async def test_a_revision_changes_with_the_run_and_not_with_its_clock(store: Store) -> None:
    revisions = RevisionStore(store.connection)
    first = (await revisions.read([RUN]))[RUN]
    for number, field in enumerate(CLOCK_FIELDS):
        await store.redis.hset(KEYS.run, field, str(12345 + number))
    assert (await revisions.read([RUN]))[RUN] == first
    await store.admit(encoded())
    second = (await revisions.read([RUN]))[RUN]
    assert second != first
    assert (await revisions.read([RUN]))[RUN] == second


async def test_runs_are_read_together_and_a_missing_one_has_a_revision_too(store: Store, redis_client: Redis) -> None:
    revisions = RevisionStore(store.connection)
    found = await revisions.read([RUN, "missing"])
    assert found[RUN] != found["missing"]
    await redis_client.hset(RunKeys("missing").run, "step", "1")
    again = await revisions.read([RUN, "missing"])
    assert (again[RUN], again["missing"] != found["missing"]) == (found[RUN], True)
