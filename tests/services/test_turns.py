"""API processes take turns: one after the other in the order they asked, and none waits for one that died."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest
from redis.asyncio import Redis

from app.core.runs.settings import Policy
from app.services import turns as turns_module
from app.services.batches.request import BatchRequest
from app.services.turns import Turns
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.redis.notifications import listen
from app.store.runs.turns import GRANTED, GRANTED_AND_WANTED, WANTED, TurnStore
from tests.clock import LoopClock
from tests.services.conftest import RUN, Process, config, encoded

KEYS = RunKeys(RUN)


@pytest.fixture
async def processes(redis_url: str, redis_client: Redis) -> AsyncIterator[list[Turns]]:
    """The turns of four API processes that have met."""
    connections = [RedisClient(redis_url, 5.0) for _ in range(4)]
    found = [Turns(TurnStore(connection), f"worker{number}") for number, connection in enumerate(connections)]
    for turns in found:
        turns.note_others(RUN)
    yield found
    for connection in connections:
        await connection.aclose()


async def hear(redis_url: str, worker: str, word: bytes, act: Callable[[], Awaitable[object]]) -> None:
    """Do something, and wait until a process that listens hears a word of it."""
    connection = RedisClient(redis_url, 5.0)
    async with aclosing(listen(connection, RUN, worker)) as listening, asyncio.timeout(60):
        await anext(listening)
        await act()
        while word not in await anext(listening):
            pass
    await connection.aclose()


async def test_one_process_has_the_turn_and_passes_it_on_in_order(processes: list[Turns]) -> None:
    assert [await turns.enter(RUN) for turns in processes] == [True, False, False, False]
    holder, order = processes[0], []
    for _ in range(5):
        await holder.handle_news(RUN, {WANTED}, needed=True)
        assert holder.is_ending(RUN)
        await holder.leave(RUN, listens=True, again=True)
        for turns in processes:
            await turns.handle_news(RUN, frozenset(), needed=True)
        (holder,) = [turns for turns in processes if turns is not holder and await turns.enter(RUN)]
        order.append(processes.index(holder))
    assert order == [1, 2, 3, 0, 1]


async def test_a_turn_lasts_for_its_users_and_admits_none_once_others_want_it(
    processes: list[Turns],
) -> None:
    first, second, *_ = processes
    assert await first.enter(RUN)
    assert await first.enter(RUN)
    assert not await second.enter(RUN)
    await first.handle_news(RUN, {WANTED}, needed=True)
    assert not await first.enter(RUN)
    await first.leave(RUN, listens=True, again=False)
    assert first.is_held(RUN)
    await first.leave(RUN, listens=True, again=False)
    assert not first.is_held(RUN)
    await second.handle_news(RUN, {GRANTED}, needed=True)
    assert await second.enter(RUN)


async def test_a_process_that_died_is_not_waited_for(processes: list[Turns], redis_client: Redis) -> None:
    assert await processes[0].enter(RUN)
    assert not await processes[1].enter(RUN)
    assert 0 < await redis_client.pttl(KEYS.turn) <= 3000, "it ends by itself"
    assert 0 < await redis_client.pttl(KEYS.turn_queue) <= 10_000, "so does the line of those who may have died"
    await redis_client.delete(KEYS.turn)
    await processes[1].handle_news(RUN, frozenset(), needed=True)
    assert await processes[1].enter(RUN)
    assert await redis_client.exists(KEYS.turn_queue) == 0, "it waits no more"


async def test_a_process_that_nobody_asks_any_more_gets_no_turn(processes: list[Turns], redis_client: Redis) -> None:
    first, second, third, _ = processes
    assert await first.enter(RUN)
    assert not await second.enter(RUN)
    assert not await third.enter(RUN)
    await second.end(RUN)
    await first.handle_news(RUN, {WANTED}, needed=True)
    await first.leave(RUN, listens=True, again=False)
    assert await redis_client.get(KEYS.turn) == b"worker2"
    await third.handle_news(RUN, {GRANTED}, needed=False)
    assert await redis_client.exists(KEYS.turn, KEYS.turn_queue) == 1, "it waits for its turn itself"
    assert await third.enter(RUN)
    await third.leave(RUN, listens=False, again=False)
    assert await redis_client.exists(KEYS.turn, KEYS.turn_queue) == 0


async def test_word_of_a_turn_that_comes_after_its_use_ends_it(processes: list[Turns], redis_client: Redis) -> None:
    """A process may ask again before it hears that it is its turn."""
    first, second, *_ = processes
    assert await first.enter(RUN)
    assert not await second.enter(RUN)
    await first.handle_news(RUN, {WANTED}, needed=True)
    await first.leave(RUN, listens=True, again=False)
    await second.handle_news(RUN, frozenset(), needed=True)
    assert await second.enter(RUN)
    await second.leave(RUN, listens=True, again=False)
    await second.handle_news(RUN, {GRANTED}, needed=False)
    assert not second.is_held(RUN)
    assert await redis_client.exists(KEYS.turn) == 0


async def test_a_process_that_takes_no_turns_never_waits_for_one(loop_clock: LoopClock) -> None:
    turns = Turns.alone()
    turns.note_others(RUN)
    assert await turns.enter(RUN)
    await turns.handle_news(RUN, {WANTED}, needed=True)
    await turns.leave(RUN, listens=True, again=True)
    assert await turns.enter(RUN), "no other process takes it"
    for _ in range(3):
        await turns.look("busy")
        await loop_clock.advance(0.2)
    assert not turns.is_crowded("busy"), "it looks, and finds no other"


async def test_turns_of_runs_that_a_process_no_longer_serves_are_forgotten(
    processes: list[Turns], loop_clock: LoopClock
) -> None:
    turns = processes[0]
    await turns.look("once")
    assert await turns.enter("used")
    await loop_clock.advance(61.0)
    turns.note_others("new")
    assert turns._turns.keys() == {"used", "new"}


@pytest.mark.parametrize("waits_s", [0.0, 70.0])
async def test_a_turn_that_a_request_asks_for_is_not_forgotten(
    processes: list[Turns], redis_url: str, loop_clock: LoopClock, waits_s: float
) -> None:
    connection = RedisClient(redis_url, 500.0)
    store = LateAnswers(connection)
    turns = Turns(store, "first")
    await loop_clock.advance(61.0)
    turns.note_others(RUN)  # as a trainer of Atropos does, which does not look
    store.allowed.clear()
    entering = asyncio.create_task(turns.enter(RUN))
    await store.asked.wait()
    await loop_clock.advance(waits_s)
    turns.note_others("another run")
    store.allowed.set()
    assert await entering
    await turns.leave(RUN, listens=False, again=False)
    assert not turns.is_held(RUN)
    await connection.aclose()


async def test_the_holder_hears_that_others_wait_and_the_next_that_it_is_its_turn(
    processes: list[Turns], redis_url: str
) -> None:
    first, second, *_ = processes
    assert await first.enter(RUN)
    await hear(redis_url, "worker0", WANTED, lambda: second.enter(RUN))
    await first.handle_news(RUN, {WANTED}, needed=True)
    await hear(redis_url, "worker1", GRANTED, lambda: first.leave(RUN, listens=True, again=False))


async def test_the_next_process_hears_whether_others_wait_for_it(processes: list[Turns], redis_url: str) -> None:
    first, second, third, _ = processes
    assert await first.enter(RUN)
    assert not await second.enter(RUN)
    assert not await third.enter(RUN)
    await first.handle_news(RUN, {WANTED}, needed=True)
    await hear(redis_url, "worker1", GRANTED_AND_WANTED, lambda: first.leave(RUN, listens=True, again=False))
    await second.handle_news(RUN, {GRANTED_AND_WANTED}, needed=True)
    assert second.is_held(RUN), "it does not ask again"
    assert second.is_ending(RUN)
    assert await second.enter(RUN), "once"
    await hear(redis_url, "worker2", GRANTED, lambda: second.leave(RUN, listens=True, again=False))
    await third.handle_news(RUN, {GRANTED}, needed=True)
    assert third.is_held(RUN)
    assert not third.is_ending(RUN)


async def test_a_grant_without_a_request_for_it_gives_no_turn(processes: list[Turns]) -> None:
    first, second, *_ = processes
    assert await first.enter(RUN)
    await second.handle_news(RUN, {GRANTED}, needed=True)
    assert not await second.enter(RUN)


async def test_a_grant_that_came_too_late_gives_no_turn_for_long(processes: list[Turns], redis_client: Redis) -> None:
    first, second, *_ = processes
    assert await first.enter(RUN)
    assert not await second.enter(RUN)
    await second.handle_news(RUN, {GRANTED}, needed=True)
    await asyncio.sleep(0.03)  # so it looks again
    assert not await second.enter(RUN)
    assert await redis_client.get(KEYS.turn) == b"worker0"


class LateAnswers(TurnStore):
    """Answers whether a process has the turn only when the test allows it."""

    def __init__(self, connection: RedisClient) -> None:
        super().__init__(connection)
        self.asked = asyncio.Event()
        self.allowed = asyncio.Event()
        self.allowed.set()

    async def ask(self, run: str, worker: str) -> tuple[bool, bool]:
        answer = await super().ask(run, worker)
        self.asked.set()
        await self.allowed.wait()
        return answer


@pytest.mark.parametrize("asked_before", [False, True])
async def test_a_grant_that_overtakes_an_answer_counts(
    processes: list[Turns], redis_url: str, redis_client: Redis, monkeypatch: pytest.MonkeyPatch, asked_before: bool
) -> None:
    """Grants and answers come over different connections."""
    first, connection = processes[0], RedisClient(redis_url, 5.0)
    store = LateAnswers(connection)
    second = Turns(store, "second")
    assert await first.enter(RUN)
    if asked_before:
        assert not await second.enter(RUN)
        monkeypatch.setattr(turns_module, "_ASK_AGAIN_S", 0.0)
    store.asked.clear()
    store.allowed.clear()
    entering = asyncio.create_task(second.enter(RUN))
    await store.asked.wait()
    await first.handle_news(RUN, {WANTED}, needed=True)
    await first.leave(RUN, listens=True, again=False)
    assert await redis_client.get(KEYS.turn) == b"second"
    await second.handle_news(RUN, {GRANTED}, needed=True)
    store.allowed.set()
    assert await entering
    assert second.is_held(RUN)
    await connection.aclose()


async def test_trainers_of_four_processes_read_no_taken_groups_and_get_their_share(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services = [process()[0] for _ in range(4)]
    await services[0].runs.administration.create(RUN, config(2), Policy())
    trainers, batches = 16, 160
    for number in range(batches):
        await services[0].groups.native.submit(RUN, [encoded(2, number)._replace(given_id=f"g{number}")])
    taken: Counter[int] = Counter()
    await redis_client.config_resetstat()

    async def train(trainer: int) -> None:
        own = services[trainer % len(services)].batches
        while taken.total() <= batches - trainers:
            batch = (await own.long_poll.take(RUN, BatchRequest(), 60)).batch
            assert batch is not None
            taken[trainer] += 1
            await own.leases.acknowledge(RUN, batch.lease.batch_id, batch.lease.lease_id)

    await asyncio.gather(*map(train, range(trainers)))
    reads = (await redis_client.info("commandstats"))["cmdstat_mget"]["calls"]
    assert reads < 1.5 * taken.total()
    assert max(taken.values()) <= 3 * min(taken.values())


async def test_a_turn_that_outlives_a_step_back_of_the_clock_is_taken(
    processes: list[Turns], redis_client: Redis
) -> None:
    """The turn expires by the clock of Redis, so after a step back it would last longer than any turn."""
    await redis_client.set(KEYS.turn, "dead", px=600_000)
    assert await processes[0].enter(RUN)
    await redis_client.set(KEYS.turn, "alive", px=1000)
    assert not await processes[1].enter(RUN)
