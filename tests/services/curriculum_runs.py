"""A run with a curriculum, and the few things that tests do with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis

from app.api.deps import Services
from app.core.policy import Policy
from app.services.curriculum.sampling import Sample, SampleRequest
from app.store.curriculum_entries import NewItem
from app.store.keys import RunKeys
from tests.services.conftest import RUN, config

NAME = "gsm8k"
KEYS = RunKeys(RUN)


async def make(services: Services, **settings: Any) -> None:
    """Make the run, and a curriculum with these settings."""
    await services.administration.create(RUN, config(1), Policy())
    await services.curricula.configure(RUN, NAME, settings, make=True)


async def register(services: Services, *keys: str, **about: Any) -> int:
    """Register items, all with the same category, prior or metadata."""
    return await services.curriculum_items.register(RUN, NAME, [NewItem(key, **about) for key in keys])


async def observe(
    services: Services,
    rewards: Mapping[str, Sequence[float]] | Sequence[tuple[str, Sequence[float]]],
    request: str | None = None,
) -> bool:
    """Observe items; returns whether that was a repetition."""
    pairs = list(rewards.items()) if isinstance(rewards, Mapping) else list(rewards)
    return (await services.curriculum_observations.observe(RUN, NAME, pairs, request)).repeated


async def sample(services: Services, n: int, **about: Any) -> Sample:
    """Sample items."""
    return await services.curriculum_samples.sample(RUN, NAME, SampleRequest(n, **about))


def keys_of(sample: Sample) -> list[str]:
    """The keys of a sample's items, in order."""
    return [each.item.key for each in sample.items]


async def dump(redis_client: Redis) -> dict[bytes, bytes]:
    """Everything in Redis, byte for byte; but for the run's clock, which may go on."""
    found = {}
    for key in await redis_client.keys("*"):
        if key.decode() != KEYS.run:
            found[key] = await redis_client.dump(key)
    return found


async def contents(redis_client: Redis, curriculum_id: str) -> dict[str, Any]:
    """What is in a curriculum's keys, but for what is in flight: that is by the clock."""
    found: dict[str, Any] = {}
    for key in KEYS.curriculum_keys(curriculum_id)[2:]:
        part = key.rpartition(":")[2]
        if part in ("in_flight", "requests", "holders"):
            continue
        zset = (await redis_client.type(key)) == b"zset"
        found[part] = await (
            redis_client.zrange(key, 0, -1, withscores=True) if zset else redis_client.hgetall(key)  # type: ignore[misc]
        )
    return {part: value for part, value in found.items() if value}
