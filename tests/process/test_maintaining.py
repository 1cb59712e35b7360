"""Of several API processes one maintains runs. If it is killed or paused, another one goes on."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest
from redis import Redis

from app.store.redis.keys import SERVICE, RunKeys
from tests.e2e.processes import wait_until
from tests.e2e.service import Service

KEYS = RunKeys("run")
LONG_S = 60.0  # far longer than it takes; a busy machine is slow
pytestmark = pytest.mark.long


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Two API processes; a member that is silent for two seconds expires."""
    started = Service(tmp_path, workers=2, settings={"LACHESIS_ENVIRONMENT_TTL_S": "2"})
    yield started
    started.stop()


@pytest.fixture
def redis(service: Service) -> Iterator[Redis]:
    with Redis(unix_socket_path=str(service.folder / "data" / "redis" / "redis.sock")) as client:
        yield client


def term(redis: Redis) -> tuple[int, int]:
    """Return the process that maintains runs, and the number of its term."""
    found = cast("list[bytes | None]", redis.hmget(SERVICE, "maintainer", "term"))
    assert found[0]
    assert found[1]
    _, pid, _ = found[0].decode().rsplit("/", 2)
    return int(pid), int(found[1])


def post(service: Service, path: str, body: dict[str, object]) -> None:
    httpx.post(f"{service.url}{path}", json=body, timeout=30, trust_env=False).raise_for_status()


def join(service: Service) -> None:
    """Let a member join that never says anything again."""
    post(service, "/v1/runs/run/environments", {"name": "math", "member": "silent"})


def asleep(redis: Redis) -> bool:
    return bool(redis.hexists(KEYS.run, "asleep_ms"))


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP])
def test_another_process_takes_over_and_members_expire_and_the_first_one_does_no_harm(
    service: Service, redis: Redis, ending: signal.Signals
) -> None:
    post(service, "/v1/runs", {"name": "run", "batch_size": 4})
    wait_until("the run sleeps", lambda: asleep(redis), LONG_S)
    join(service)
    assert not asleep(redis)
    first, of_first = term(redis)
    os.kill(first, ending)
    try:
        wait_until("another process takes over", lambda: term(redis)[0] != first, LONG_S)
        second, of_second = term(redis)
        assert of_second == of_first + 1
        wait_until("the member expires", lambda: not redis.exists(KEYS.members), LONG_S)
        wait_until("the run sleeps again", lambda: asleep(redis), LONG_S)
    finally:
        if ending == signal.SIGSTOP:
            os.kill(first, signal.SIGCONT)
    join(service)
    wait_until("the next member expires", lambda: not redis.exists(KEYS.members), LONG_S)
    assert term(redis) == (second, of_second)


def test_a_service_that_starts_again_maintains_runs_at_once(service: Service, redis: Redis) -> None:
    post(service, "/v1/runs", {"name": "run", "batch_size": 4})
    join(service)
    _, before = term(redis)
    service.stop()
    service.start()
    wait_until("the member expires", lambda: not redis.exists(KEYS.members), LONG_S)
    assert term(redis)[1] > before
