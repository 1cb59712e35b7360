"""The budget for large bodies: bounded, except for the oldest body, in order, and never stuck."""

import asyncio
import json
from dataclasses import dataclass

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.http.body_budget import UNCOUNTED_BYTES, BodyBudget, Share
from tests.api.atropos_calls import group, register
from tests.api.conftest import Start

MIB = UNCOUNTED_BYTES


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


def claiming(share: Share, mib: int) -> asyncio.Task[None]:
    return asyncio.create_task(share.claim(mib * MIB))


async def test_what_does_not_fit_waits_until_it_does() -> None:
    budget = BodyBudget(10 * MIB)
    first, second = budget.share(), budget.share()
    await first.claim(6 * MIB)
    waiting = claiming(second, 5)
    await settle()
    assert not waiting.done()
    assert budget.held_bytes == 6 * MIB
    first.release()
    await waiting
    assert budget.held_bytes == 5 * MIB


async def test_small_bodies_neither_count_nor_wait() -> None:
    budget = BodyBudget(0)
    await budget.share().claim(2 * MIB)
    for _ in range(100):
        await asyncio.wait_for(budget.share().claim(MIB), 1)
    assert budget.held_bytes == 2 * MIB


async def test_a_body_larger_than_the_budget_passes_alone() -> None:
    budget = BodyBudget(10 * MIB)
    large, other = budget.share(), budget.share()
    await large.claim(50 * MIB)
    waiting = claiming(other, 2)
    await settle()
    assert not waiting.done()
    large.release()
    await waiting


async def test_nobody_overtakes_one_that_waits_longer() -> None:
    """Else one large body could wait forever behind a stream of smaller ones."""
    budget = BodyBudget(10 * MIB)
    shares = [budget.share() for _ in range(3)]
    await shares[0].claim(5 * MIB)
    large, small = claiming(shares[1], 8), claiming(shares[2], 2)
    await settle()
    assert (large.done(), small.done()) == (False, False)
    shares[0].release()
    await asyncio.gather(large, small)


async def test_two_that_grow_do_not_wait_for_each_other() -> None:
    budget = BodyBudget(10 * MIB)
    first, second = budget.share(), budget.share()
    await first.claim(5 * MIB)
    await second.claim(5 * MIB)
    younger = claiming(second, 9)
    await asyncio.wait_for(first.claim(9 * MIB), 1)
    assert not younger.done()
    assert budget.held_bytes == 14 * MIB
    first.release()
    await asyncio.wait_for(younger, 1)


async def test_one_that_gives_up_waiting_is_in_nobodys_way() -> None:
    budget = BodyBudget(10 * MIB)
    batch_request, gone, other = (budget.share() for _ in range(3))
    await batch_request.claim(5 * MIB)
    given_up, waiting = claiming(gone, 8), claiming(other, 2)
    await settle()
    given_up.cancel()
    await asyncio.wait([given_up])
    gone.release()
    await asyncio.wait_for(waiting, 1)
    assert budget.held_bytes == 7 * MIB


@dataclass(frozen=True)
class Body:
    """A body that claims these sizes one after the other, with turns of the event loop between, and may give up."""

    sizes_mib: list[int]
    turns: int
    leaves: bool


BODIES = st.builds(Body, st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(0, 5), st.booleans())


@given(bodies=st.lists(BODIES, max_size=12), budget_mib=st.integers(0, 40))
async def test_all_claims_are_served_and_only_the_oldest_exceeds_the_budget(
    bodies: list[Body], budget_mib: int
) -> None:
    budget = BodyBudget(budget_mib * MIB)
    order: list[Share] = []

    async def pass_through(body: Body) -> None:
        share = budget.share()
        try:
            for size_mib in body.sizes_mib:
                if size_mib > 1 and share not in order:
                    order.append(share)
                await share.claim(size_mib * MIB)
                assert share.covers(size_mib * MIB)
                assert budget.held_bytes == sum(each.held_bytes for each in order)
                assert sum(each.held_bytes for each in order[1:]) <= budget_mib * MIB
                for _ in range(body.turns):
                    await asyncio.sleep(0)
        finally:
            share.release()
            if share in order:
                order.remove(share)

    tasks = [asyncio.create_task(pass_through(body)) for body in bodies]
    await asyncio.sleep(0)
    for task, body in zip(tasks, bodies, strict=True):
        if body.leaves:
            task.cancel()
    async with asyncio.timeout(15):
        done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in done if each is not None and not isinstance(each, asyncio.CancelledError)] == []
    assert budget.held_bytes == 0


@pytest.mark.parametrize("good", [True, False])
async def test_large_bodies_pass_one_by_one_where_the_budget_is_small(start: Start, good: bool) -> None:
    """Whatever becomes of one, its share is given back; else the second would wait forever."""
    client: httpx.AsyncClient = await start(body_budget_bytes=0)
    await register(client)
    body = json.dumps(group(4, images="x" * (2 * MIB)) | ({} if good else {"tokens": [["x"]]}))
    async with asyncio.timeout(20):
        replies = await asyncio.gather(*(client.post("/scored_data", content=body) for _ in range(4)))
    assert {reply.status_code for reply in replies} == {200 if good else 422}
