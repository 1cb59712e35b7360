"""Long polls: the order in which requests are served, what that costs, and how waiting ends."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from app.core.runs.settings import Policy as RunPolicy
from app.events import caller
from app.services.batches.request import BatchRequest
from app.services.long_poll import AttemptLock, LongPoll, WaitPolicy, rest_s
from lachesis.wire.errors import (
    InvalidField,
    LachesisError,
    RunNotFound,
    StoreRefused,
    StoreUnavailable,
    TooManyConflicts,
)
from tests.services.conftest import RUN, Process, config, encoded
from tests.waiting import wait_until

LONG_S = 60.0


@dataclass(frozen=True)
class Want:
    """A request for some goods."""

    goods: int = 1
    name: str = ""


@dataclass(eq=False)
class Shop:
    """Goods that requests wait for. It counts attempts, and notes who asked for each."""

    goods: int = 0
    attempts: list[Want] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    askers: list[str] = field(default_factory=list)
    error: Exception | None = None
    wrong: Want | None = None
    gate: asyncio.Event | None = None
    leaving: "asyncio.Task[int] | None" = None  # goes away while requests that may overtake are named
    news: "asyncio.Queue[None]" = field(default_factory=asyncio.Queue)

    async def attempt(self, run: str, want: Want, ahead: Sequence[Want], *, compete: bool) -> int | None:
        self.attempts.append(want)
        describe = caller.get()
        self.askers.append("" if describe is None else describe()["trainer"])
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if want == self.wrong:
            raise InvalidField("it is wrong", ("goods",))
        if ahead and min(one.goods for one in ahead) <= want.goods:
            return None
        if want.goods > self.goods:
            return 0
        self.goods -= want.goods
        return want.goods

    async def overtaking(self, run: str, wants: Sequence[Want]) -> list[int]:
        left, found = self.goods, []
        for position, want in enumerate(wants):
            if want.goods <= left:
                left -= want.goods
                found.append(position)
        if self.leaving is not None:
            self.leaving.cancel()
            await asyncio.wait({self.leaving})
        return found

    async def release(self, run: str, goods: int) -> None:
        self.released.append(goods)

    async def listen(self, run: str) -> AsyncGenerator[frozenset[bytes], None]:
        while True:
            await self.news.get()
            yield frozenset()

    def bring(self, goods: int) -> None:
        """Add goods, and say so."""
        self.goods += goods
        self.news.put_nowait(None)

    def queue(self, *, keep: bool = False) -> LongPoll[Want, int]:
        policy = WaitPolicy[Want, int](
            attempt=self.attempt,
            overtaking=self.overtaking,
            found=bool,
            own_errors=(InvalidField,),
            release=None if keep else self.release,
        )
        return LongPoll(policy, self.listen)


@dataclass
class Crowd:
    """Requests that wait in one queue, in the order they came."""

    shop: Shop
    queue: LongPoll[Want, int]
    served: list[str] = field(default_factory=list)
    tasks: "list[asyncio.Task[int]]" = field(default_factory=list)

    async def join(self, *wants: Want, wait_s: float = LONG_S, stop: "asyncio.Future[None] | None" = None) -> None:
        """Let requests come one after another, each as soon as the previous one waits."""
        for want in wants:
            already = self.queue.waiting
            self.tasks.append(asyncio.create_task(self._wait(want, wait_s, stop)))
            await wait_until(lambda already=already: self.queue.waiting == already + 1, pause_s=0)

    async def _wait(self, want: Want, wait_s: float, stop: "asyncio.Future[None] | None") -> int:
        caller.set(lambda: {"trainer": want.name})
        goods = await self.queue.take(RUN, want, wait_s, stop)
        if goods:
            self.served.append(want.name)
        return goods

    async def settled(self) -> None:
        """Wait until the task has seen all news and rests."""
        await wait_until(self.shop.news.empty, pause_s=0)
        self.shop.attempts.clear()


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    shop = Shop()
    crowd = Crowd(shop, shop.queue())
    yield crowd
    for task in crowd.tasks:
        task.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)
    shop.news.put_nowait(None)


def named(count: int, goods: int = 1) -> list[Want]:
    return [Want(goods, str(number)) for number in range(count)]


async def test_requests_are_served_in_the_order_they_came(crowd: Crowd) -> None:
    await crowd.join(*named(8))
    crowd.shop.bring(5)
    await wait_until(lambda: len(crowd.served) == 5)
    crowd.shop.bring(3)
    await asyncio.gather(*crowd.tasks)
    assert crowd.served == [str(number) for number in range(8)]


async def test_a_change_that_serves_nobody_costs_one_attempt_however_many_wait(crowd: Crowd) -> None:
    await crowd.join(*named(30))
    crowd.shop.attempts.clear()
    for changes in range(1, 4):
        crowd.shop.bring(0)
        await wait_until(lambda changes=changes: len(crowd.shop.attempts) == changes)
    assert {want.name for want in crowd.shop.attempts} == {"0"}


async def test_serving_n_requests_costs_n_attempts_and_one_without_a_result(crowd: Crowd) -> None:
    await crowd.join(*named(30))
    crowd.shop.attempts.clear()
    crowd.shop.bring(20)
    await wait_until(lambda: len(crowd.served) == 20)
    await wait_until(lambda: len(crowd.shop.attempts) == 21)
    crowd.shop.bring(10)
    await asyncio.gather(*crowd.tasks)
    assert len(crowd.shop.attempts) == 31


async def test_requests_that_the_policy_names_overtake_a_blocked_one(crowd: Crowd) -> None:
    await crowd.join(Want(9, "large"), Want(2, "small"), Want(3, "middle"), Want(1, "tiny"))
    crowd.shop.bring(3)
    await wait_until(lambda: len(crowd.served) == 2)
    assert crowd.served == ["small", "tiny"]
    crowd.shop.bring(12)
    await asyncio.gather(*crowd.tasks)
    assert crowd.served[2:] == ["large", "middle"]


async def test_a_request_that_ends_while_those_that_may_overtake_are_named_gets_no_attempt(crowd: Crowd) -> None:
    large = Want(9, "large")
    await crowd.join(large, Want(1, "gone"))
    await crowd.settled()
    crowd.shop.leaving = crowd.tasks[1]
    for attempts in (1, 2):
        crowd.shop.bring(1)
        await wait_until(lambda attempts=attempts: crowd.shop.attempts.count(large) == attempts)
    assert crowd.shop.attempts == [large, large]
    assert crowd.shop.released == []


async def test_a_newcomer_leaves_to_those_before_it_what_they_wait_for(crowd: Crowd) -> None:
    await crowd.join(Want(3, "first"))
    crowd.shop.goods = 3
    assert await crowd.queue.take(RUN, Want(3, "second")) == 0
    assert await crowd.queue.take(RUN, Want(1, "fits")) == 1
    assert crowd.queue.blocked == 2
    crowd.shop.bring(1)
    assert await crowd.tasks[0] == 3


async def test_a_newcomer_leaves_it_also_after_all_others_were_served(crowd: Crowd) -> None:
    await crowd.join(Want(1, "early"))
    crowd.shop.bring(1)
    await crowd.tasks[0]
    await crowd.join(Want(3, "first"))
    crowd.shop.goods = 3
    assert await crowd.queue.take(RUN, Want(3, "second")) == 0
    crowd.shop.bring(0)
    assert await crowd.tasks[1] == 3


async def test_an_error_of_its_own_fails_one_request_and_the_others_are_served(crowd: Crowd) -> None:
    await crowd.join(*named(3))
    crowd.shop.wrong = Want(1, "0")
    crowd.shop.bring(2)
    with pytest.raises(InvalidField):
        await crowd.tasks[0]
    assert await asyncio.gather(*crowd.tasks[1:]) == [1, 1]


@pytest.mark.parametrize("error", [RunNotFound("it is gone"), StoreUnavailable("no answer"), ZeroDivisionError()])
async def test_another_error_fails_all_who_wait_and_the_next_are_served(crowd: Crowd, error: Exception) -> None:
    await crowd.join(*named(3))
    crowd.shop.error = error
    crowd.shop.bring(0)
    found = await asyncio.wait_for(asyncio.gather(*crowd.tasks, return_exceptions=True), 60)
    assert found == [error] * 3
    crowd.shop.error = None
    await wait_until(lambda: crowd.queue.waiting == 0)
    await crowd.join(Want(name="next"))
    crowd.shop.bring(1)
    assert await crowd.tasks[-1] == 1


async def test_a_stopped_request_takes_nothing_and_the_next_one_gets_it(crowd: Crowd) -> None:
    stop = asyncio.get_running_loop().create_future()
    await crowd.join(Want(name="stopped"), stop=stop)
    await crowd.join(Want(name="next"))
    stop.set_result(None)
    assert await crowd.tasks[0] == 0
    crowd.shop.bring(1)
    assert await crowd.tasks[1] == 1
    assert crowd.shop.released == []


@pytest.mark.parametrize("how", ["it is stopped", "it is cancelled"])
async def test_what_is_taken_for_a_request_that_went_away_is_released(crowd: Crowd, how: str) -> None:
    stop = asyncio.get_running_loop().create_future()
    await crowd.join(Want(name="gone"), stop=stop)
    crowd.shop.gate = asyncio.Event()
    attempts = len(crowd.shop.attempts)
    crowd.shop.bring(1)
    await wait_until(lambda: len(crowd.shop.attempts) > attempts)
    if how == "it is stopped":
        stop.set_result(None)
    else:
        crowd.tasks[0].cancel()
    await wait_until(lambda: crowd.queue.waiting == 0)
    crowd.shop.gate.set()
    await wait_until(lambda: crowd.shop.released == [1])
    with suppress(asyncio.CancelledError):
        assert await crowd.tasks[0] == 0
    assert crowd.served == []


async def test_who_went_away_in_the_first_attempt_gets_no_other(crowd: Crowd) -> None:
    stop = asyncio.get_running_loop().create_future()
    await crowd.join(Want(name="first"))
    await crowd.join(Want(name="gone"), stop=stop)
    first, second = asyncio.Event(), asyncio.Event()
    crowd.shop.gate = first
    crowd.shop.bring(3)
    await wait_until(lambda: crowd.shop.askers[-1] == "first")
    crowd.shop.gate = second
    first.set()
    await wait_until(lambda: crowd.shop.askers[-1] == "gone")
    stop.set_result(None)
    await wait_until(lambda: crowd.queue.waiting == 0)
    second.set()
    with pytest.raises(TooManyConflicts):
        await crowd.tasks[1]
    assert (crowd.shop.goods, crowd.shop.released) == (1, [1])


async def test_those_behind_an_attempt_without_an_answer_of_redis_fail_with_it() -> None:
    """Each would wait for Redis as long as the first."""
    lock, gate, made = AttemptLock(), asyncio.Event(), []

    async def attempt(name: str, error: LachesisError | None) -> str:
        async with lock.attempt():
            made.append(name)
            await gate.wait()
            if error is not None:
                raise error
        return name

    errors = {"first": StoreUnavailable("it is away"), "second": None, "third": None}
    tasks = [asyncio.create_task(attempt(name, error)) for name, error in errors.items()]
    await wait_until(lambda: made == ["first"])
    gate.set()
    failed = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in failed] == [StoreUnavailable] * 3
    assert made == ["first"]
    assert await attempt("later", None) == "later"
    with pytest.raises(RunNotFound):
        await attempt("wrong", RunNotFound("there is none"))
    assert await attempt("last", None) == "last"


async def test_those_behind_a_refused_attempt_get_its_error_with_what_to_do() -> None:
    """Who repeats a request depends on its code; who repairs Redis reads the remedy."""
    lock, gate = AttemptLock(), asyncio.Event()

    async def attempt() -> None:
        async with lock.attempt():
            await gate.wait()
            raise StoreRefused("the user may not run scripts", remedy="Change its ACL.")

    tasks = [asyncio.create_task(attempt()) for _ in range(2)]
    await asyncio.sleep(0)
    gate.set()
    failed = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in failed] == [StoreRefused] * 2
    assert {str(error) for error in failed} == {"the user may not run scripts. Change its ACL."}
    assert failed[0] is not failed[1]  # each is raised with a traceback of its own


@pytest.mark.parametrize("keep", [False, True])
async def test_the_result_of_an_attempt_under_way_counts_when_time_is_up(keep: bool) -> None:
    """A request never gets the answer that nothing was stored when something was."""
    shop = Shop()
    queue, stop = shop.queue(keep=keep), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(queue.take(RUN, Want(), LONG_S if keep else 0.05, stop))
    await wait_until(lambda: queue.waiting == 1, pause_s=0)
    shop.gate = asyncio.Event()
    attempts = len(shop.attempts)
    shop.bring(1)
    await wait_until(lambda: len(shop.attempts) > attempts)
    if keep:
        stop.set_result(None)
    await wait_until(lambda: queue.waiting == 0)
    assert not waiting.done()
    shop.gate.set()
    assert await waiting == 1
    assert shop.released == []


async def test_an_attempt_is_made_in_the_name_of_who_asked(crowd: Crowd) -> None:
    await crowd.join(Want(2, "first"), Want(1, "second"))
    crowd.shop.askers.clear()
    crowd.shop.bring(1)
    await wait_until(lambda: crowd.served == ["second"])
    assert crowd.shop.askers == ["first", "second"]


async def test_requests_that_gave_up_are_forgotten_though_others_wait(process: Callable[..., Process]) -> None:
    """Else a client that asks and hangs up, again and again, fills the memory behind one that is patient."""
    services, _ = process()
    await services.runs.administration.create(RUN, config(4), RunPolicy())
    stop = asyncio.get_running_loop().create_future()
    patient = asyncio.create_task(services.batches.long_poll.take(RUN, BatchRequest(), 60, stop))
    watched = [Watched() for _ in range(50)]
    ends = [weakref.ref(batch_request) for batch_request in watched]
    await wait_until(lambda: services.batches.long_poll.waiting == 1)
    await asyncio.gather(*(services.batches.long_poll.take(RUN, batch_request, 0.05) for batch_request in watched))
    watched.clear()
    await wait_until(lambda: not left(ends), 30)  # a look for those that may overtake may still list one
    assert not patient.done()
    assert [end() for end in ends] == [None] * 50
    stop.set_result(None)
    assert (await patient).not_ready is not None


class Watched(BatchRequest):
    """A request whose end can be seen."""


def left(ends: Sequence["weakref.ref[Watched]"]) -> list[Watched]:
    gc.collect()
    return [request for end in ends if (request := end()) is not None]


async def test_a_run_that_is_removed_fails_all_who_wait_for_its_batches(process: Callable[..., Process]) -> None:
    services, _ = process()
    await services.runs.administration.create(RUN, config(4), RunPolicy())
    queue = services.batches.long_poll
    waiting = [asyncio.create_task(queue.take(RUN, BatchRequest(), LONG_S)) for _ in range(3)]
    await wait_until(lambda: queue.waiting == 3)
    await services.runs.administration.delete(RUN)
    found = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
    assert [type(error) for error in found] == [RunNotFound] * 3


async def test_a_reason_from_before_is_not_given_to_the_next(process: Callable[..., Process]) -> None:
    services, _ = process()
    await services.runs.administration.create(RUN, config(4), RunPolicy())

    async def once(_: str) -> AsyncGenerator[frozenset[bytes], None]:
        yield frozenset()
        await asyncio.sleep(60)

    queue = services.batches.dispatch.long_poll(once)
    assert (await queue.take(RUN, BatchRequest(), 0.1)).batch is None
    await services.groups.native.submit(RUN, [encoded(4, 1)._replace(given_id="one")])
    assert (await queue.take(RUN, BatchRequest())).batch is not None


@pytest.mark.parametrize(("worked_s", "rested_s"), [(0.0, 0.005), (0.1, 0.3), (12.0, 1.0)])
def test_a_queue_rests_longer_than_it_works_and_never_as_long_as_an_outage(worked_s: float, rested_s: float) -> None:
    assert rest_s(worked_s) == pytest.approx(rested_s)
