"""A run with a curriculum, and the few things that tests do with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.services.curriculum.sampling import CurriculumSample, CurriculumSampleRequest
from app.store.curriculum.entries import ItemWrite
from app.store.redis.client import RedisClient
from app.store.redis.keys import CURRICULUM_PARTS, RunKeys
from app.store.redis.pipeline import Command
from tests.services.accounting import keys_of_runs
from tests.services.conftest import RUN, config

NAME = "gsm8k"
KEYS = RunKeys(RUN)
_HASHES = ("items", "estimates", "category_numbers", "arms")


class Twice(RedisClient):
    """Sends what it is given twice, and tells what was answered to the second time."""

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        await super().pipeline(commands)
        return await super().pipeline(commands)


async def make(services: Services, **settings: Any) -> None:
    """Make the run, and a curriculum with these settings."""
    await services.runs.administration.create(RUN, config(1), Policy())
    await services.curriculum.administration.configure(RUN, NAME, settings, make=True)


async def register(services: Services, *keys: str, **about: Any) -> int:
    """Register items, all with the same category, prior or metadata."""
    return await services.curriculum.items.register(RUN, NAME, [ItemWrite(key, **about) for key in keys])


async def observe(
    services: Services,
    rewards: Mapping[str, Sequence[float]] | Sequence[tuple[str, Sequence[float]]],
    request: str | None = None,
) -> bool:
    """Observe items; returns whether that was a repetition."""
    pairs = list(rewards.items()) if isinstance(rewards, Mapping) else list(rewards)
    return (await services.curriculum.observations.observe(RUN, NAME, pairs, request)).repeated


async def sample(services: Services, n: int, **about: Any) -> CurriculumSample:
    """Sample items."""
    return await services.curriculum.samples.sample(RUN, NAME, CurriculumSampleRequest(n, **about))


def keys_of(sample: CurriculumSample) -> list[str]:
    """The keys of a sample's items, in order."""
    return [each.item.key for each in sample.items]


async def pass_time(redis_client: Redis, seconds: float) -> None:
    """Move the run clock on."""
    await redis_client.hincrby(KEYS.run, "clock_ms", round(1000 * seconds))  # type: ignore[misc]


async def dump(redis_client: Redis) -> dict[bytes, bytes]:
    """Return everything in Redis, byte for byte, except the run's own hash, whose clock may run on."""
    found = [key for key in await keys_of_runs(redis_client) if key.decode() != KEYS.run]
    pipeline = redis_client.pipeline(transaction=False)
    for key in found:
        pipeline.dump(key)
    return dict(zip(found, await pipeline.execute(), strict=True))


async def contents(redis_client: Redis, curriculum_id: str) -> dict[str, Any]:
    """Return the contents of a curriculum's keys that are not empty, without items in flight, which depend on time."""
    passing = ("in_flight", "holders", "requests", "samples", "samples_until")
    wanted = [part for part in CURRICULUM_PARTS if part not in passing]
    pipeline = redis_client.pipeline(transaction=False)
    for part in wanted:
        key = KEYS.curriculum_part(curriculum_id, part)
        pipeline.hgetall(key) if part in _HASHES else pipeline.zrange(key, 0, -1, withscores=True)
    found = await pipeline.execute()
    return {part: value for part, value in zip(wanted, found, strict=True) if value}
