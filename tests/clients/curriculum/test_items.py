"""Streams of items, drawn ahead by functions of the test: what fails, comes too late, or is not needed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from lachesis import NoItem
from lachesis._prefetch.items import ItemQueue
from lachesis.errors import CurriculumNotFound, Unreachable
from lachesis.wire.curriculum_items import SampledItem, SampledItems
from tests.clock import LoopClock
from tests.waiting import wait_until


async def test_a_stream_that_gave_up_draws_nothing_until_asked_again(loop_clock: LoopClock) -> None:
    drawn: list[int] = []

    async def sample(n: int, request_id: str, budget_s: float | None) -> SampledItems:
        drawn.append(n)
        return SampledItems(strategy="uniform", in_flight=0, in_flight_ttl_s=60, missing="no_items", retry_after_s=0.01)

    async def release(sample: str, keys: Sequence[str], budget_s: float | None) -> int:
        raise AssertionError((sample, keys, budget_s))  # there is nothing to release

    queue = ItemQueue(sample, release, prefetch=4, wait_s=1.0, where="run math")
    for _ in range(2):
        before = len(drawn)
        with pytest.raises(NoItem, match="the curriculum has no items"):
            await anext(queue)
        given_up_at = len(drawn)
        assert given_up_at > before
        for _ in range(20):  # many of its pauses
            await loop_clock.advance(1)
        assert len(drawn) == given_up_at
    await queue.aclose()


async def test_what_is_ready_is_given_back_although_a_draw_that_was_lost_cannot_be_repeated() -> None:
    drawn: list[int] = []
    released: list[tuple[str, Sequence[str]]] = []
    items = [SampledItem(key=key, bin=0, probability=0.2, why="") for key in "abcde"]

    async def sample(n: int, request_id: str, budget_s: float | None) -> SampledItems:
        drawn.append(n)
        if len(drawn) > 1:
            raise Unreachable(f"no answer to {request_id} in {budget_s} s")
        return SampledItems(
            strategy="uniform",
            sample="s",
            items=items,
            in_flight=5,
            in_flight_ttl_s=0,
            missing=None,
            retry_after_s=None,
        )

    async def release(sample: str, keys: Sequence[str], budget_s: float | None) -> int:
        assert budget_s is not None
        released.append((sample, keys))
        return len(keys)

    queue = ItemQueue(sample, release, prefetch=4, wait_s=None, where="run math")
    assert [(await anext(queue)).item.key for _ in range(4)] == list("abcd")
    await wait_until(lambda: drawn == [5, 3])
    for _ in range(2):
        await queue.aclose()
    assert (drawn, released) == ([5, 3, 1], [("s", ["e"])])


async def release_nothing(sample: str, keys: Sequence[str], budget_s: float | None) -> int:
    return 0


def failing_queue(
    drawn: list[int],
    failures: Mapping[int, Exception],
    release: Callable[[str, Sequence[str], float | None], Awaitable[int]] = release_nothing,
) -> ItemQueue:
    """Prefetch 4 items named after their draw. Draws with these numbers fail. ``drawn`` gets the size of each."""

    async def sample(n: int, request_id: str, budget_s: float | None) -> SampledItems:
        drawn.append(n)
        if (failure := failures.get(len(drawn))) is not None:
            raise failure
        keys = [f"{len(drawn)}/{position}" for position in range(n)]
        return SampledItems(
            strategy="uniform",
            sample=request_id,
            items=[SampledItem(key=key, bin=0, probability=0.2, why="") for key in keys],
            in_flight=n,
            in_flight_ttl_s=0,
            missing=None,
            retry_after_s=None,
        )

    return ItemQueue(sample, release, prefetch=4, wait_s=None, where="run math")


async def test_draws_that_failed_while_nobody_waited_are_repeated_and_ready_items_come_first() -> None:
    drawn: list[int] = []
    queue = failing_queue(drawn, {draw: Unreachable("the service is away") for draw in (2, 3)})
    tried = [(await anext(queue)).item.key for _ in range(4)]
    await wait_until(lambda: drawn == [5, 3])
    tried.append((await anext(queue)).item.key)
    await wait_until(lambda: drawn == [5, 3, 4])
    tried.append((await anext(queue)).item.key)
    assert tried == ["1/0", "1/1", "1/2", "1/3", "1/4", "4/0"]
    await queue.aclose()


async def test_a_refusal_that_came_while_nobody_waited_is_raised_after_the_ready_items() -> None:
    drawn: list[int] = []
    queue = failing_queue(drawn, {2: CurriculumNotFound("it was deleted")})
    for _ in range(4):
        await anext(queue)
    await wait_until(lambda: drawn == [5, 3])
    assert (await anext(queue)).item.key == "1/4"
    with pytest.raises(CurriculumNotFound, match="it was deleted"):
        await anext(queue)
    assert drawn == [5, 3]
    await queue.aclose()


async def test_items_that_come_too_late_under_the_id_of_an_old_request_are_given_back() -> None:
    """The service had not seen the request, and has just handed them out."""
    asked: list[str] = []
    released: list[tuple[str, Sequence[str]]] = []

    async def sample(n: int, request_id: str, budget_s: float | None) -> SampledItems:
        asked.append(request_id)
        if len(asked) == 1:
            raise Unreachable("the service is away")
        return SampledItems(
            strategy="uniform",
            sample=f"s{len(asked)}",
            items=[
                SampledItem(key=f"{len(asked)}/{position}", bin=0, probability=0.2, why="") for position in range(n)
            ],
            in_flight=n,
            in_flight_ttl_s=0.01 if request_id == asked[0] else 0,
            missing=None,
            retry_after_s=None,
        )

    async def release(sample: str, keys: Sequence[str], budget_s: float | None) -> int:
        released.append((sample, keys))
        return len(keys)

    queue = ItemQueue(sample, release, prefetch=1, wait_s=None, where="run math")
    with pytest.raises(Unreachable):
        await anext(queue)
    await asyncio.sleep(0.02)  # longer than the items are kept from others
    assert (await anext(queue)).item.key == "3/0"
    assert asked == [asked[0], asked[0], asked[2]]
    assert released == [("s2", ["2/0", "2/1"])]
    await queue.aclose()


class SlowRelease:
    """Releases items once it is answered. ``keys`` has those of each request."""

    def __init__(self) -> None:
        self.keys: list[Sequence[str]] = []
        self.answered = asyncio.Event()

    async def __call__(self, sample: str, keys: Sequence[str], budget_s: float | None) -> int:
        self.keys.append(keys)
        await self.answered.wait()
        return len(keys)


async def test_an_end_waits_for_one_that_still_gives_items_back() -> None:
    """Else a curriculum closes its connections too early."""
    release = SlowRelease()
    queue = failing_queue([], {}, release)
    await anext(queue)
    first = asyncio.create_task(queue.aclose())
    await wait_until(lambda: bool(release.keys))
    second = asyncio.create_task(queue.aclose())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not second.done()
    release.answered.set()
    await asyncio.gather(first, second)
    assert release.keys == [["1/1", "1/2", "1/3", "1/4"]]


async def test_what_an_interrupted_end_left_is_given_back_by_the_next_one() -> None:
    release = SlowRelease()
    queue = failing_queue([], {}, release)
    await anext(queue)
    interrupted = asyncio.create_task(queue.aclose())
    await wait_until(lambda: bool(release.keys))
    interrupted.cancel()
    with pytest.raises(asyncio.CancelledError):
        await interrupted
    assert [item async for item in queue] == []
    release.answered.set()
    for _ in range(2):
        await queue.aclose()
    assert release.keys == [["1/1", "1/2", "1/3", "1/4"]] * 2


async def test_a_stream_whose_connections_are_closed_ends_without_an_error() -> None:
    """As after an interrupted end of its curriculum, while a draw was on its way."""
    closed = RuntimeError("this object is closed: create another one")

    async def release(sample: str, keys: Sequence[str], budget_s: float | None) -> int:
        raise closed

    drawn: list[int] = []
    queue = failing_queue(drawn, {2: Unreachable("the service is away"), 3: closed}, release)
    for _ in range(4):
        await anext(queue)
    await wait_until(lambda: drawn == [5, 3])
    await queue.aclose()
    assert drawn == [5, 3, 1]
