"""Use cases over the session's real Redis, as several API processes would have them."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.runs.settings import RunConfig
from app.main import build_services
from app.services.batches.request import BatchResult
from app.services.environments.registry import Membership
from app.services.maintenance import Maintenance
from app.services.runs import capacity
from app.settings import ServiceSettings
from app.store.groups.encoded_group import EncodedGroup
from app.store.redis.client import RedisClient
from tests.lossy_line import LossyLine, lossy_line
from tests.services.processes import Processes

Process = tuple[Services, Maintenance]

RUN = "run"


def config(batch_size: int) -> RunConfig:
    return RunConfig(batch_size=batch_size, max_token_len=512, num_steps=100)


async def join(
    services: Services,
    name: str = "math",
    member: str = "one",
    run: str = RUN,
    change_settings: bool = False,
    **settings: object,
) -> Membership:
    """Join an environment, of groups of two unless said otherwise."""
    return await services.environments.registry.join(
        run, name, {"group_size": 2} | settings, member, change_settings=change_settings
    )


def encoded(size: int, mark: int, environment: int | None = None) -> EncodedGroup:
    """A stand-in for columns: the use cases never look inside."""
    return EncodedGroup(size, environment, f"{mark}|".encode() + b"x" * (50 * size))


def marks(answer: BatchResult) -> list[int]:
    assert answer.batch is not None
    return [int(payload.split(b"|")[0]) for payload in answer.batch.payloads]


@pytest.fixture
def processes(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """Start two API processes for a state machine. Its model counts what a run holds at each step."""
    monkeypatch.setattr(capacity, "_CHECK_EVERY_S", 0.02)
    started = Processes(redis_url)
    yield started
    started.close()


@pytest.fixture
async def lossy(redis_url: str, tmp_path: Path) -> AsyncIterator[tuple[LossyLine, str]]:
    """Lay a line that loses replies and holds commands; gives it, and the URL of a process's end."""
    async with lossy_line(redis_url, tmp_path / "lossy.sock") as laid:
        yield laid


@pytest.fixture
async def process(redis_url: str, redis_client: Redis) -> AsyncIterator[Callable[..., Process]]:
    """Wire one more API process's worth of use cases: ``services, maintenance = process(relax_after_s=0)``.

    Each is as if on a host of its own: others must hear from it to know that it lives.
    """
    connections: list[RedisClient] = []
    started: list[Services] = []

    def start(url: str = redis_url, **overrides: object) -> Process:
        settings = ServiceSettings(redis_url=SecretStr(url), **overrides)  # type: ignore[arg-type]
        connections.append(RedisClient(url, settings.store_patience_s))
        services = build_services(settings, connections[-1], "tested", f"host{len(connections)}/1/tested")
        started.append(services)
        return services, services.maintenance

    yield start
    for services in started:
        for queue in (services.batches.long_poll, services.replay.samples.queue, services.replay.insertion.queue):
            await queue.stop()
    for connection in connections:
        await connection.aclose()
