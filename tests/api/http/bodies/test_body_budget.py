"""The budget for large bodies: bounded, except for two bodies, in order, and never stuck."""

import asyncio
import json
import re
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.http.bodies.body_budget import BodyBudget, BodyShare
from tests.api.atropos_calls import group, register
from tests.api.conftest import Start
from tests.waiting import wait_until

MIB = 1024 * 1024


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


def claiming(share: BodyShare, mib: int) -> asyncio.Task[None]:
    return asyncio.create_task(share.claim(mib * MIB))


async def test_what_does_not_fit_waits_until_it_does() -> None:
    budget = BodyBudget(10 * MIB)
    oldest, first, second = (budget.share(address) for address in "oab")
    await oldest.claim(30 * MIB)
    await first.claim(5 * MIB)
    other = budget.share("c")
    await other.claim(3 * MIB)
    waiting = claiming(second, 5)
    await settle()
    assert (waiting.done(), budget.waiting) == (False, 1)
    first.release()
    await waiting
    assert (budget.held_bytes, budget.waiting) == (38 * MIB, 0)


async def test_small_bodies_neither_count_nor_wait() -> None:
    budget = BodyBudget(0)
    await budget.share("a").claim(2 * MIB)
    for _ in range(100):
        await asyncio.wait_for(budget.share("a").claim(MIB // 4), 60)
    assert budget.held_bytes == 2 * MIB


async def test_a_body_larger_than_the_budget_passes_alone() -> None:
    budget = BodyBudget(0)
    large, other = budget.share("a"), budget.share("b")
    await large.claim(50 * MIB)
    waiting = claiming(other, 2)
    await settle()
    assert not waiting.done()
    large.release()
    await waiting


async def test_nobody_overtakes_one_that_waits_longer() -> None:
    """Else one large body could wait forever behind a stream of smaller ones."""
    budget = BodyBudget(10 * MIB)
    shares = [budget.share(address) for address in "oxyab"]
    await shares[0].claim(5 * MIB)
    await shares[1].claim(5 * MIB)
    await shares[2].claim(3 * MIB)
    large, small = claiming(shares[3], 5), claiming(shares[4], 2)
    await settle()
    assert (large.done(), small.done()) == (False, False)
    shares[1].release()
    await asyncio.gather(large, small)


async def test_one_sender_has_at_most_half_and_keeps_nobody_else_waiting() -> None:
    budget = BodyBudget(10 * MIB)
    oldest, first = budget.share("o"), budget.share("a")
    await oldest.claim(MIB)
    await first.claim(4 * MIB)
    own, other = claiming(budget.share("a"), 2), claiming(budget.share("b"), 5)
    await settle()
    assert (own.done(), other.done()) == (False, True)
    first.release()
    await own


async def test_a_token_with_many_addresses_has_at_most_three_quarters() -> None:
    budget = BodyBudget(20 * MIB)
    oldest = budget.share("o")
    await oldest.claim(MIB)
    held = [budget.share(address, "token 1") for address in "abc"]
    for share in held:
        await share.claim(5 * MIB)
    own, other = claiming(budget.share("d", "token 1"), 1), claiming(budget.share("d", "token 2"), 4)
    await settle()
    assert (own.done(), other.done()) == (False, True)
    held[0].release()
    await own


async def test_bodies_that_wait_for_something_else_hold_a_quarter_more_or_one_of_them() -> None:
    budget = BodyBudget(12 * MIB)
    shares = [budget.share(address) for address in "abcd"]
    for share, mib in zip(shares, (5, 1, 2, 4), strict=True):
        await share.claim(mib * MIB)
    assert [share.let_wait() for share in shares] == [True, False, False, False], "one may be larger than a quarter"
    shares[0].release()
    assert [share.let_wait() for share in shares[1:]] == [True, True, False]
    assert budget.share("e").let_wait(), "it holds nothing"
    assert budget.held_bytes == 7 * MIB
    for share in shares[1:]:
        share.release()
    assert budget.held_bytes == 0


async def test_a_body_that_waits_for_something_else_makes_room() -> None:
    budget = BodyBudget(0)
    large, other = budget.share("a"), budget.share("b")
    await large.claim(5 * MIB)
    waiting = claiming(other, 2)
    await settle()
    assert not waiting.done()
    assert large.let_wait()
    await asyncio.wait_for(waiting, 60)


async def test_two_that_grow_do_not_wait_for_each_other() -> None:
    budget = BodyBudget(10 * MIB)
    first, second = budget.share("a"), budget.share("b")
    await first.claim(5 * MIB)
    await second.claim(5 * MIB)
    younger = claiming(second, 11)
    await asyncio.wait_for(first.claim(20 * MIB), 60)
    assert not younger.done()
    first.release()
    await asyncio.wait_for(younger, 60)


async def test_one_that_gives_up_waiting_is_in_nobodys_way() -> None:
    budget = BodyBudget(10 * MIB)
    oldest, first, gone, other = (budget.share(address) for address in "oabc")
    await oldest.claim(MIB)
    await first.claim(5 * MIB)
    third = budget.share("d")
    await third.claim(3 * MIB)
    given_up, waiting = claiming(gone, 5), claiming(other, 2)
    await settle()
    assert budget.waiting == 2
    given_up.cancel()
    await asyncio.wait([given_up])
    gone.release()
    await asyncio.wait_for(waiting, 60)
    assert (budget.held_bytes, budget.waiting) == (11 * MIB, 0)


async def test_the_bodies_of_one_sender_over_its_number_wait_and_cost_nothing() -> None:
    budget = BodyBudget(1000 * MIB, sender_bodies=3)
    held = [budget.share("a") for _ in range(4)]  # the oldest is spared
    for share in held[:3]:
        await share.claim(MIB)
    queued = [claiming(budget.share("a"), 1) for _ in range(200)]
    await settle()
    assert (budget.waiting, budget.held_bytes) == (199, 4 * MIB)
    planned = budget.planned
    for _ in range(10):
        other = budget.share("b")
        await other.claim(MIB)
        other.release()
    await settle()
    assert budget.planned - planned <= 10 * 2 * 6, "the rule looks at those that hold memory, and at one that waits"
    for task in queued:
        task.cancel()


@pytest.mark.parametrize(("hold_back_s", "most_evicted"), [(0.0, 9), (3600.0, 1)])
async def test_a_sender_that_lost_a_body_begins_no_other_for_a_while(hold_back_s: float, most_evicted: int) -> None:
    """All bodies here are slow at once, so the next would be evicted for the one after it."""
    budget = BodyBudget(1000 * MIB, patience_s=-1.0, sender_bodies=2, hold_back_s=hold_back_s)

    async def slow(sender: str) -> None:
        share = budget.share(sender)
        share.begin(lambda: None)
        await share.claim(MIB)
        if sender != "a":
            share.release()

    tasks = [asyncio.create_task(slow("a")) for _ in range(12)]
    for _ in range(10):
        await settle()
    assert budget.evicted == most_evicted
    async with asyncio.timeout(60):
        await slow("b")
    for task in tasks:
        task.cancel()


async def test_all_claims_of_a_turn_are_decided_together() -> None:
    budget = BodyBudget(0)
    oldest = budget.share("o")
    await oldest.claim(MIB)
    claims = [claiming(budget.share(f"s{number}"), 1) for number in range(50)]
    await settle()
    assert (budget.waiting, budget.planned) == (50, 1 + 51)
    for task in claims:
        task.cancel()


async def test_queued_bodies_of_one_sender_come_in_order_and_all_of_them() -> None:
    budget, came = BodyBudget(1000 * MIB, sender_bodies=2), list[int]()

    async def one(number: int) -> None:
        share = budget.share("a")
        await share.claim(MIB)
        came.append(number)
        await asyncio.sleep(0)
        share.release()

    async with asyncio.timeout(60):
        await asyncio.gather(*(one(number) for number in range(30)))
    assert came == [*range(30)]
    assert (budget.held_bytes, budget.waiting) == (0, 0)


@dataclass(frozen=True)
class Body:
    """A body that claims these sizes one after the other, with turns of the event loop between, and may give up."""

    sizes_mib: list[int]
    turns: int
    leaves: bool
    sender: str


BODIES = st.builds(
    Body, st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(0, 5), st.booleans(), st.sampled_from("ab")
)


@given(bodies=st.lists(BODIES, max_size=12), budget_mib=st.integers(0, 40))
async def test_all_claims_are_served_and_only_the_oldest_exceeds_the_budget(
    bodies: list[Body], budget_mib: int
) -> None:
    """These bodies are never slow, so the oldest alone is spared."""
    budget = BodyBudget(budget_mib * MIB, patience_s=3600)
    order: list[BodyShare] = []

    async def pass_through(body: Body) -> None:
        share = budget.share(body.sender)
        try:
            for size_mib in body.sizes_mib:
                if share not in order:
                    order.append(share)
                await share.claim(size_mib * MIB)
                assert share.covers(size_mib * MIB)
                assert budget.held_bytes == sum(each.held_bytes for each in order)
                counted = order[1:]
                assert sum(each.held_bytes for each in counted) <= budget_mib * MIB
                for sender in "ab":
                    of_sender = [each.held_bytes for each in counted if each.origin[0] == sender]
                    assert sum(of_sender) <= budget_mib * MIB // 2
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
    async with asyncio.timeout(60):
        done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in done if each is not None and not isinstance(each, asyncio.CancelledError)] == []
    assert (budget.held_bytes, budget.waiting) == (0, 0)


@pytest.mark.parametrize("good", [True, False])
async def test_large_bodies_pass_one_by_one_where_the_budget_is_small(start: Start, good: bool) -> None:
    """Whatever becomes of one, its share is given back; else the second would wait forever."""
    client: httpx.AsyncClient = await start(body_budget_bytes=0)
    await register(client)
    body = json.dumps(group(4, images="x" * (2 * MIB)) | ({} if good else {"tokens": [["x"]]}))
    async with asyncio.timeout(60):
        replies = await asyncio.gather(*(client.post("/scored_data", content=body) for _ in range(4)))
    assert {reply.status_code for reply in replies} == {200 if good else 422}


SLOW, ANNOUNCED_BYTES, SENT_BYTES = 8, 100_000_000, 2_000_000
HELD_BYTES = 2 * MIB  # what a slow sender holds: what it sent, to the next 256 KiB


def slow_sender(client: httpx.AsyncClient) -> socket.socket:
    """Announce much, send a part of it, and stop."""
    connection = socket.create_connection((client.base_url.host, client.base_url.port or 0))
    connection.sendall(b"POST /scored_data HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % ANNOUNCED_BYTES)
    connection.sendall(b" " * SENT_BYTES)
    connection.setblocking(False)
    return connection


def reply_to(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except BlockingIOError:
        return b""


async def metric(client: httpx.AsyncClient, name: str) -> float:
    found = re.search(rf"^{name}{{.*}} (.*)$", (await client.get("/metrics")).text, re.MULTILINE)
    assert found, name
    return float(found[1])


async def holds(client: httpx.AsyncClient, held_bytes: int) -> bool:
    return await metric(client, "lachesis_body_memory_bytes") == held_bytes


async def honest(client: httpx.AsyncClient) -> int:
    """Send a group of 1.6 MB; returns the status."""
    async with asyncio.timeout(60):
        return (await client.post("/scored_data", content=json.dumps(group(4, images="x" * 1_600_000)))).status_code


@pytest.mark.parametrize("room", [256 * MIB, 8 * MIB], ids=["room for all", "too little room"])
async def test_slow_senders_do_not_keep_an_honest_body_waiting(start: Start, room: int) -> None:
    """Eight that announced 100 MB and stopped held all the memory, and an honest body of 1.6 MB waited 151 s."""
    client: httpx.AsyncClient = await start(body_budget_bytes=room)
    await register(client)
    with ExitStack() as stack:
        slow = []
        for number in range(SLOW):
            slow.append(stack.enter_context(await asyncio.to_thread(slow_sender, client)))
            counted = min(number, room // 2 // HELD_BYTES)  # all of one address, beside the oldest
            await wait_until(partial(holds, client, (1 + counted) * HELD_BYTES))
        assert await honest(client) == 200
        answered = [reply for reply in map(reply_to, slow) if reply]
        evicted = await metric(client, "lachesis_bodies_evicted_total")
        assert len(answered) == evicted
        assert all(reply.startswith(b"HTTP/1.1 408") and b"waited for memory" in reply for reply in answered)
        assert all(b"\r\nretry-after: 2\r\n" in reply for reply in answered)
        assert (evicted == 0) == (room == 256 * MIB)
