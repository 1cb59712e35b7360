"""The memory for contents of groups: what fits goes, others wait in order, and are refused after a while."""

import asyncio

import pytest

from app.api.http.bodies.content_budget import ContentBudget
from lachesis.wire.errors import TooManyReads

LONG_S = 3600.0


async def test_what_does_not_fit_is_refused_and_goes_once_there_is_room() -> None:
    budget = ContentBudget(10, patience_s=0.0)
    first, second = budget.share(), budget.share()
    await first.claim(6)
    with pytest.raises(TooManyReads):
        await second.claim(5)
    assert budget.held_bytes == 6
    await second.claim(4)
    await second.claim(100)
    assert budget.held_bytes == 10, "a share that holds any keeps what it has"
    await first.release()
    await first.release()
    assert budget.held_bytes == 4


async def test_what_is_larger_than_the_budget_goes_alone() -> None:
    budget = ContentBudget(10, patience_s=0.0)
    large, small = budget.share(), budget.share()
    await large.claim(11)
    with pytest.raises(TooManyReads):
        await small.claim(1)
    await large.release()
    await small.claim(1)
    with pytest.raises(TooManyReads):
        await large.claim(11)
    assert budget.held_bytes == 1


async def test_a_reply_that_grows_beyond_the_budget_goes_only_if_it_is_alone() -> None:
    budget = ContentBudget(10, patience_s=0.0)
    first, second = budget.share(), budget.share()
    await first.claim(5)
    await second.claim(4)
    with pytest.raises(TooManyReads):
        first.settle(7)
    assert budget.held_bytes == 9
    first.settle(6)
    first.settle(1)
    await first.release()
    second.settle(100)
    assert budget.held_bytes == 100


async def test_those_that_wait_go_in_order_and_one_that_leaves_holds_nothing() -> None:
    budget = ContentBudget(10, patience_s=LONG_S)
    went: list[str] = []

    async def claim(name: str, size_bytes: int) -> None:
        await budget.share().claim(size_bytes)
        went.append(name)

    holding = budget.share()
    await holding.claim(9)
    waiting = {name: asyncio.create_task(claim(name, size)) for name, size in (("gone", 5), ("large", 8), ("small", 1))}
    for _ in range(10):
        await asyncio.sleep(0)
    assert went == [], "a small one does not overtake those that came before"
    waiting["gone"].cancel()
    await asyncio.wait({waiting["gone"]})
    await holding.release()
    await asyncio.gather(waiting["large"], waiting["small"])
    assert went == ["large", "small"]
    assert budget.held_bytes == 9
