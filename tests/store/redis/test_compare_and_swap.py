"""Optimistic changes give up after a bound, with an error that says what to do."""

import asyncio

import pytest
from redis.asyncio import Redis

from app.store.redis.compare_and_swap import Attempts
from lachesis.wire.errors import TooManyConflicts


def test_the_bound_is_the_number_of_attempts() -> None:
    attempts = Attempts("count", "run", bound=3)
    assert [attempts.again() for _ in range(3)] == [True] * 3
    with pytest.raises(TooManyConflicts):
        attempts.again()


def test_the_error_names_the_change_and_the_run() -> None:
    attempts = Attempts("extend the lease of a batch", "math", bound=0)
    with pytest.raises(TooManyConflicts) as raised:
        attempts.again()
    assert raised.value.detail == (
        "could not extend the lease of a batch in run math: "
        "other requests changed the same thing during each of 0 attempts"
    )
    assert (raised.value.status, raised.value.code, raised.value.retry_after_s) == (503, "too_many_conflicts", 1.0)


def test_the_error_names_no_run_for_a_change_of_the_service() -> None:
    with pytest.raises(TooManyConflicts, match=r"^could not revoke a token: other requests"):
        Attempts("revoke a token", bound=0).again()


def test_the_log_names_the_change_and_the_run(caplog: pytest.LogCaptureFixture) -> None:
    attempts = Attempts("end a sample", "math", bound=1)
    attempts.again()
    assert not caplog.records
    with pytest.raises(TooManyConflicts):
        attempts.again()
    (record,) = caplog.records
    assert record.fields == {"run": "math", "change": "end a sample", "attempts": 1}  # type: ignore[attr-defined]


async def test_as_many_attempts_as_writers_suffice(redis_client: Redis) -> None:
    """A write fails only because another one succeeded."""
    writers = 20
    await redis_client.set("n", 0)

    async def increment() -> None:
        attempts = Attempts("increment", "run", bound=writers)
        while attempts.again():
            seen = await redis_client.get("n")
            swap = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('INCR', KEYS[1]) end return 0"
            if await redis_client.eval(swap, 1, "n", seen):  # type: ignore[misc]
                return

    await asyncio.gather(*(increment() for _ in range(writers)))
    assert await redis_client.get("n") == b"20"
