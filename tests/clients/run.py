"""A run to test clients with, and what goes into it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Group


def group(*tokens: int, **more: Any) -> Group:
    """A group of one sequence."""
    return Group([list(tokens)], [list(tokens)], [float(len(tokens))], **more)


async def submitted(environment: AsyncEnvironment, groups: Sequence[Group]) -> list[str]:
    """Submit groups and wait until they have arrived; their ids."""
    ids = [await environment.submit(one) for one in groups]
    await environment.flush()
    return ids


async def counts(trainer: AsyncTrainer) -> dict[str, int]:
    """Where the groups of the run are."""
    groups = (await trainer.status()).groups
    return {"queued": groups.queued, "leased": groups.leased, "delivered": groups.delivered}


async def leased(trainer: AsyncTrainer, groups: int) -> bool:
    """Whether so many groups are leased."""
    return (await counts(trainer))["leased"] == groups


async def interrupted_end(loop: AsyncGenerator[Any, None]) -> None:
    """Cancel the end of a loop as soon as it waits."""
    ending = asyncio.create_task(loop.aclose())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
