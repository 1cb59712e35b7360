"""A run whose history is tested, its groups, and a sampler of its own."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from app.api.deps import Services
from app.core.ranks.costs import Weight
from app.core.runs.settings import Policy
from app.services.history.sampling import HistorySampler
from app.services.stores import Stores
from app.store.groups.codec import EncodedGroup
from tests.services.conftest import RUN, config, join


def group(
    name: str, environment: int | None, *rewards: float, tokens: int = 6, version: int | None = 0
) -> EncodedGroup:
    """A group of sequences with these rewards."""
    given = np.array(rewards)
    weight = Weight(tokens, tokens**2)
    return EncodedGroup(
        len(given), environment, name.encode(), name, version, weight, rewards=given, lengths=np.zeros(len(given))
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
