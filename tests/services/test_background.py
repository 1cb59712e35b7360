"""Tasks that repeat something until they are stopped."""

import asyncio
import logging

import pytest

from app.services.background import Periodic
from lachesis.wire.errors import StoreRefused, StoreUnavailable, UnreadableRecord
from tests.waiting import wait_until


@pytest.mark.parametrize("error", [ValueError("no number"), StoreRefused("no right"), UnreadableRecord("no record")])
async def test_a_failure_is_logged_and_does_not_end_the_task(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    times = 0

    async def work() -> None:
        nonlocal times
        times += 1
        raise error

    task = Periodic("reading numbers", 0.0, work)
    task.start()
    await wait_until(lambda: times >= 3)
    await task.stop()
    levels = {record.levelname for record in caplog.records if record.name == "lachesis.background"}
    assert levels == {"ERROR"}
    assert "reading numbers failed" in caplog.text
    assert str(error) in caplog.text
    assert ("Traceback" in caplog.text) is isinstance(error, ValueError)


async def test_each_new_failure_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = iter([ValueError("one"), ValueError("again"), KeyError("two"), None, ValueError("three")])
    done = asyncio.Event()

    async def work() -> None:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        if "three" in caplog.text:
            done.set()

    task = Periodic("reading numbers", 0.0, work)
    task.start()
    await done.wait()
    await task.stop()
    lines = [record.message for record in caplog.records if record.name == "lachesis.background"]
    assert [line.rpartition(": ")[2] for line in lines] == ["one", "'two'", "three"]


async def test_an_outage_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The log has lines of its own about outages."""
    caplog.set_level(logging.INFO)
    times = 0

    async def work() -> None:
        nonlocal times
        times += 1
        raise StoreUnavailable("Redis does not answer")

    task = Periodic("reading numbers", 0.0, work)
    task.start()
    await wait_until(lambda: times >= 3)
    await task.stop()
    assert caplog.text == ""


async def test_the_task_stops_in_the_middle_of_its_work() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = Periodic("waiting", 0.0, work)
    await task.stop()  # it may have never been started
    task.start()
    await begun.wait()
    await task.stop()
    assert ended.is_set()
