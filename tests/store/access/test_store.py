"""Tokens in Redis: changes that meet, and commands that are repeated."""

import asyncio
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from app.core.access.tokens import TokenRecord, TokenSecret
from app.services.access.tokens import NewToken, TokenAdministration
from app.store.access import scripts
from app.store.access.rate_limits import LimitStore
from app.store.access.store import AccessStore, is_closed
from app.store.redis.client import RedisClient
from app.store.redis.keys import ACCESS, ServiceKeys
from lachesis.wire.errors import Conflict, TokenNotFound, UnreadableRecord
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings

RECORD = TokenRecord("0f3a5c7e9b1d", "x", "trainer", ("math-*",), None, False, 1, None, (TokenSecret("a" * 64, 7),))


@pytest.fixture
def access(connection: RedisClient) -> AccessStore:
    return AccessStore(connection)


async def test_a_record_is_read_as_it_was_written(access: AccessStore) -> None:
    assert await access.put(None, RECORD)
    assert (await access.get(RECORD.token_id))[1] == RECORD
    _, records, used_ms = await access.all()
    assert (records, used_ms) == ([RECORD], {})


async def test_a_token_that_an_older_build_stored_changes_and_is_forgotten(
    access: AccessStore, redis_client: Redis
) -> None:
    """It is changed only if its record is the text that was read. Builds may encode the same record differently."""
    limits, queue = RateLimitSettings(max_bytes_per_s=5), QueueLimitSettings(max_queued_groups=7)
    limited = replace(RECORD, limits=limits, queue_limits=queue)
    assert await access.put(None, limited)
    text = (
        '{"name":"x","role":"trainer","runs":["math-*"],"environment":null,"contents":false,"created_ms":1,'
        f'"expires_ms":null,"secrets":[{{"digest":"{"a" * 64}","ends_ms":7}}],'
        '"limits":{"max_bytes_per_s":5},"queue_limits":{"max_queued_groups":7}}'
    )
    for change in (lambda read: access.put(read, replace(read, revoked_ms=5)), access.forget):
        await redis_client.hset(ACCESS, f"token:{RECORD.token_id}", text)  # type: ignore[misc]
        _, read = await access.get(RECORD.token_id)
        assert read == limited
        await change(read)
        assert (await access.get(RECORD.token_id))[1] != limited


async def test_each_change_starts_a_generation_and_the_first_token_closes(access: AccessStore, redis_url: str) -> None:
    assert not (await access.state()).closed
    assert not await is_closed(redis_url, 5.0)
    assert await access.put(None, RECORD)
    first = await access.state()
    assert first.closed
    await access.put(RECORD, replace(RECORD, revoked_ms=5))
    assert (await access.state()).generation > first.generation
    await access.forget(replace(RECORD, revoked_ms=5))
    assert (await access.get(RECORD.token_id))[1] is None
    assert await is_closed(redis_url, 5.0), "it stays closed"


async def test_the_last_use_of_a_forgotten_token_is_forgotten_with_it(access: AccessStore, redis_client: Redis) -> None:
    await access.put(None, RECORD)
    await access.note_uses({RECORD.token_id: 70})
    await access.forget(RECORD)
    assert not await redis_client.hexists(ACCESS, f"used:{RECORD.token_id}")  # type: ignore[misc]


async def test_only_a_new_token_closes_a_service_that_was_reopened(access: AccessStore) -> None:
    await access.put(None, RECORD)
    assert await access.reopen(await access.state())
    await access.put(RECORD, replace(RECORD, revoked_ms=5))
    assert not (await access.state()).closed
    await access.put(None, replace(RECORD, token_id="b" * 12))
    assert (await access.state()).closed


async def test_a_token_that_was_created_since_the_reading_keeps_the_service_closed(access: AccessStore) -> None:
    before = await access.state()
    await access.mark_closed()
    await access.put(None, RECORD)
    assert not await access.reopen(before)
    assert (await access.state()).closed


async def test_a_repeated_command_changes_nothing(access: AccessStore) -> None:
    """The connection repeats a command whose reply was lost."""
    for seen, new in ((None, RECORD), (RECORD, replace(RECORD, revoked_ms=5))):
        assert await access.put(seen, new)
        generation = (await access.state()).generation
        assert await access.put(seen, new)
        assert (await access.state()).generation == generation


async def test_of_two_changes_one_is_made(access: AccessStore) -> None:
    await access.put(None, RECORD)
    made = await asyncio.gather(*(access.put(RECORD, replace(RECORD, revoked_ms=ms)) for ms in (5, 6)))
    assert sorted(made) == [False, True]


async def test_there_is_a_largest_number_of_tokens(access: AccessStore, connection: RedisClient) -> None:
    await access.put(None, RECORD)
    full = scripts.put_token(ServiceKeys(), token_id="b" * 12, seen="", new="{}", most=1)
    assert await connection.run(full) == -1
    await access.put(RECORD, replace(RECORD, revoked_ms=5))
    await access.forget(replace(RECORD, revoked_ms=5))
    assert await connection.run(full) == 1


async def test_the_largest_number_is_an_error(access: AccessStore, redis_client: Redis) -> None:
    await redis_client.hset(ACCESS, "tokens", "10000")  # type: ignore[misc]
    with pytest.raises(Conflict, match="10000 tokens"):
        await access.put(None, RECORD)


async def test_the_latest_use_of_a_known_token_is_kept(access: AccessStore) -> None:
    await access.put(None, RECORD)
    for ms in (50, 70, 60):
        await access.note_uses({RECORD.token_id: ms, "b" * 12: ms})
    assert (await access.all())[2] == {RECORD.token_id: 70}


async def test_a_damaged_record_is_named(access: AccessStore, redis_client: Redis) -> None:
    await access.put(None, RECORD)
    await redis_client.hset(ACCESS, f"token:{RECORD.token_id}", "{}")  # type: ignore[misc]
    with pytest.raises(UnreadableRecord, match=RECORD.token_id):
        await access.get(RECORD.token_id)


@pytest.mark.parametrize("text", [b"{}", b"\xff"])
async def test_a_damaged_record_hides_no_other_and_can_be_revoked(
    access: AccessStore, connection: RedisClient, redis_client: Redis, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = "b" * 12
    await access.put(None, RECORD)
    await access.put(None, replace(RECORD, token_id=damaged))
    await redis_client.hset(ACCESS, f"token:{damaged}", text)  # type: ignore[misc]
    administration = TokenAdministration(access, LimitStore(connection))
    assert [facts.record for facts in await administration.list()] == [RECORD]
    assert f"Revoke token {damaged}" in caplog.text
    await administration.create(NewToken("metrics", ()), None)
    with pytest.raises(UnreadableRecord):  # it may be valid for another version of the service
        await administration.reopen()
    await administration.revoke(damaged)
    assert (await access.get(damaged))[1] is None
    with pytest.raises(TokenNotFound):
        await administration.revoke(damaged)


async def test_the_token_that_ended_first_makes_room_for_a_new_one(
    access: AccessStore, connection: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.access.store.MAX_TOKENS", 3)
    now_ms = (await access.state()).now_ms
    changes: dict[str, dict[str, int]] = {
        "valid": {"expires_ms": now_ms + 10_000_000},
        "ended last": {"revoked_ms": now_ms - 1},
        "ended first": {"expires_ms": now_ms - 2},
    }
    for token_id, change in changes.items():
        assert await access.put(None, replace(RECORD, token_id=token_id, **change))  # type: ignore[arg-type]
    administration = TokenAdministration(access, LimitStore(connection))
    new = [(await administration.create(NewToken("operator", ()), None))[0].record.token_id for _ in range(2)]

    with pytest.raises(Conflict):
        await administration.create(NewToken("operator", ()), None)

    assert {record.token_id for record in (await access.all())[1]} == {"valid", *new}
