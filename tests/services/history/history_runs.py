"""A run whose history is tested, its groups, a sampler of its own, and how the history is written and read."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from app.api.deps import Services
from app.core.history.resolution import AskedRange
from app.core.history.wanted import WantedHistory
from app.core.numeric.short_sums import mean
from app.core.ranks.costs import Weight
from app.core.runs.settings import Policy
from app.services.history.reading import RunHistory
from app.services.history.sampling import HistorySampler
from app.services.stores import Stores
from app.store.groups.encoded_group import EncodedGroup
from tests.services.conftest import RUN, config, join


def group(
    name: str, environment: int | None, *rewards: float, tokens: int = 6, version: int | None = 0
) -> EncodedGroup:
    """A group of sequences with these rewards."""
    given = np.array(rewards)
    weight = Weight(tokens, tokens**2)
    return EncodedGroup(
        len(given),
        environment,
        name.encode(),
        name,
        version,
        weight,
        lengths=np.zeros(len(given)),
        rewards=given,
        reward=mean(given) if rewards else None,
    )


async def make_run(services: Services, **settings: Any) -> int:
    """Make a run of batches of four, with an environment of groups of two. Return its id."""
    await services.runs.administration.create(RUN, config(4), Policy(**settings))
    return (await join(services, "math", min_share=0.25)).environment


def sampler_of(services: Services, stores: Stores, clock: Callable[[], float] = time.monotonic) -> HistorySampler:
    """Return a sampler of its own."""
    diagnostics = services.batches.diagnostics
    return HistorySampler(
        diagnostics, stores.batch_records, stores.replay, stores.curricula, stores.histories, clock=clock
    )


async def keep(services: Services, *, maintains: bool = True) -> None:
    """Let a process write its part of the history, as its maintenance does every ten seconds."""
    await services.history.writer.write(RUN, maintained=maintains)


async def read(services: Services, environment: str | None = None, ago_s: float = 3600) -> RunHistory:
    """Read the history up to after the present span."""
    (now_s, _) = await services.connection.call("TIME")
    return await services.history.reading.series(
        RUN, AskedRange(int(now_s) - ago_s, int(now_s) + 1), WantedHistory(environment=environment)
    )


def total(series: list[float | None]) -> float:
    """Add up what is known."""
    return sum(value for value in series if value is not None)
