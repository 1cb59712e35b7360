"""Readers share an answer only if each of them accepts one of its age. Old and large answers are not kept."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from fastapi import Request

from app.api.http.shared_answers import OLDEST_S, SharedAnswers
from tests.clock import LoopClock

LARGEST_KEPT_BYTES = 1024 * 1024


class Source:
    """A clock that the test moves, and an answer that says how often it was computed."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.computed = 0
        self.answers = SharedAnswers(lambda: self.now_s)

    async def compute(self) -> bytes:
        self.computed += 1
        mine = self.computed
        await asyncio.sleep(0)
        return b'{"answer":%d}' % mine

    async def ask(
        self, accepts: str | None = None, path: str = "/a", compute: Callable[[], Awaitable[bytes]] | None = None
    ) -> bytes:
        headers = [] if accepts is None else [(b"cache-control", accepts.encode())]
        request = Request({"type": "http", "path": path, "query_string": b"", "headers": headers})
        return bytes((await self.answers.reply(request, compute or self.compute)).body)


async def test_who_accepts_no_age_gets_a_new_answer() -> None:
    source = Source()
    assert [await source.ask(accepts) for accepts in (None, "no-cache", "max-age=0", "x-max-age=5", "max-age=-1")] == [
        b'{"answer":%d}' % number for number in range(1, 6)
    ]


async def test_an_answer_is_shared_as_long_as_each_reader_accepts_its_age() -> None:
    source = Source()
    together = await asyncio.gather(*(source.ask("max-age=1") for _ in range(10)))
    assert set(together) == {b'{"answer":1}'}
    source.now_s += 1
    assert await source.ask("no-transform, Max-Age=1") == b'{"answer":1}'
    source.now_s += 0.5
    assert await source.ask("max-age=2") == b'{"answer":1}'
    assert await source.ask("max-age=1") == b'{"answer":2}'
    assert await source.ask("max-age=1", path="/b") == b'{"answer":3}'
    source.now_s += OLDEST_S + 0.1
    assert await source.ask("max-age=999999999") == b'{"answer":4}', "nothing is kept longer"


async def test_readers_of_a_revision_share_an_answer_that_began_after_one_of_them_asked() -> None:
    source = Source()
    assert await source.ask("max-age=1") == b'{"answer":1}'
    assert await source.ask("revision=ab12") == b'{"answer":2}', "the first may lack the change"
    source.now_s += 5
    assert await source.ask("max-age=1, revision=ab12") == b'{"answer":2}'
    assert await source.ask("revision=ab13") == b'{"answer":3}'
    assert await source.ask("max-age=1") == b'{"answer":4}'
    assert await source.ask("revision=?") == b'{"answer":5}', "it names none"
    source.now_s += OLDEST_S
    assert await source.ask("revision=ab12") == b'{"answer":6}'


async def test_an_answer_that_is_computed_again_is_among_the_newest() -> None:
    source = Source()
    for number in range(100):
        await source.ask("max-age=1", path=f"/{number}")
    source.now_s += 2
    again = await source.ask("max-age=1", path="/0")
    await source.ask("max-age=1", path="/100")
    assert await source.ask("max-age=1", path="/0") == again


async def test_answers_are_forgotten_in_time_without_another_request(loop_clock: LoopClock) -> None:
    """The clock of the answers goes back in the end. An answer that was kept would be shared then."""
    source = Source()
    for path in ("/a", "/b"):
        await source.ask("max-age=10", path=path)
        source.now_s += 4
        await loop_clock.advance(4)
    source.now_s += 2
    await loop_clock.advance(2)
    assert await source.ask("max-age=10", path="/b") == b'{"answer":2}', "it is 6 s old"
    source.now_s += 4
    await loop_clock.advance(4)
    source.now_s -= OLDEST_S
    assert await source.ask("max-age=10", path="/a") == b'{"answer":3}'
    assert await source.ask("max-age=10", path="/b") == b'{"answer":4}'


@pytest.mark.parametrize(("size", "computed"), [(LARGEST_KEPT_BYTES, 1), (LARGEST_KEPT_BYTES + 1, 2)])
async def test_a_large_answer_is_shared_while_it_is_computed_and_then_forgotten(size: int, computed: int) -> None:
    source = Source()

    async def large() -> bytes:
        return (await source.compute()).ljust(size)

    together = await asyncio.gather(*(source.ask("max-age=5", compute=large) for _ in range(3)))
    assert (set(together), source.computed) == ({b'{"answer":1}'.ljust(size)}, 1)
    await source.ask("max-age=5", compute=large)
    assert source.computed == computed


async def test_an_error_reaches_all_who_wait_and_nobody_after_them() -> None:
    source = Source()

    async def fail() -> bytes:
        await asyncio.sleep(0)
        raise ValueError("no")

    failed = await asyncio.gather(*(source.ask("max-age=5", compute=fail) for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in failed] == ["no"] * 3
    assert await source.ask("max-age=5") == b'{"answer":1}'


async def test_a_reader_who_leaves_takes_the_answer_from_nobody() -> None:
    source = Source()
    go_on = asyncio.Event()

    async def slow() -> bytes:
        await go_on.wait()
        return await source.compute()

    first = asyncio.create_task(source.ask("max-age=5", compute=slow))
    second = asyncio.create_task(source.ask("max-age=5", compute=slow))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    go_on.set()
    assert await second == b'{"answer":1}'
