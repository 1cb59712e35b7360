"""The SDK follows the events of a run, also over connections that break."""

import asyncio
from contextlib import aclosing
from itertools import islice

import httpx
import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Settings, Trainer
from lachesis._version import sdk_version
from lachesis.errors import InvalidField, RunNotFound
from lachesis.wire.events import RunEvent
from tests.clients.another_server import another_server
from tests.clients.proxy import CuttingProxy
from tests.clients.run import group, submitted
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_events_come_once_and_in_order_over_connections_that_break(run: Settings, proxy: CuttingProxy) -> None:
    async with AsyncTrainer(run) as trainer, AsyncTrainer(run) as follower:
        found: list[RunEvent] = []
        async with aclosing(follower.events(after="0")) as events:
            async for event in events:
                found.append(event)
                if event.kind == "run changed":
                    step = len(found)
                    await proxy.drop_all()
                    await trainer.change_run(max_staleness=step)
                if len(found) == 6:
                    break
                if len(found) == 1:
                    await trainer.change_run(max_staleness=100)
        assert [event.kind for event in found] == ["run created", *["run changed"] * 5]
        changes = [event.model_dump()["changes"]["max_staleness"] for event in found[1:]]
        assert changes == [100, 2, 3, 4, 5]


async def test_the_log_of_the_service_names_the_sdk_and_its_version(
    run: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncTrainer(run) as trainer:
        await trainer.change_run(max_staleness=1)
    (changed,) = [record for record in caplog.records if record.message == "run changed"]
    agent = f"lachesis/{sdk_version()} python-httpx/{httpx.__version__}"
    assert changed.fields["agent"] == agent  # type: ignore[attr-defined]


async def test_events_begin_now_and_end_with_the_run(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer:
        kinds: list[str] = []
        began = asyncio.Event()

        async def follow() -> None:
            async for event in trainer.events():
                kinds.append(event.kind)
                began.set()

        task = asyncio.create_task(follow())
        number = 0
        while not began.is_set():  # until it follows
            number += 1
            await trainer.change_run(max_staleness=number)
            await asyncio.sleep(0.1)
        await trainer.delete_run()
        await task
        assert kinds[-1] == "run deleted"
        assert set(kinds[:-1]) <= {"run created", "run changed"}


@pytest.mark.parametrize(("made_again", "told"), [(False, []), (True, ["run deleted"])])
async def test_events_end_if_the_run_is_deleted_while_the_connection_is_broken(
    run: Settings, proxy: CuttingProxy, made_again: bool, told: list[str]
) -> None:
    async with AsyncTrainer(run) as trainer, aclosing(trainer.events(after="0")) as events:
        assert (await anext(events)).kind == "run created"
        service, proxy.upstream = proxy.upstream, None
        await proxy.drop_all()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{service}", trust_env=False) as direct:
            (await direct.delete("/v1/runs/math")).raise_for_status()
            if made_again:
                (await direct.post("/v1/runs", json={"name": "math", "batch_size": 2})).raise_for_status()
        proxy.upstream = service
        assert [event.kind async for event in events] == told


async def test_what_cannot_be_followed_is_an_error(settings: Settings) -> None:
    async with AsyncTrainer(settings) as trainer:
        with pytest.raises(RunNotFound):
            await anext(trainer.events())
        await trainer.create_run(batch_size=2)
        with pytest.raises(InvalidField, match="after"):
            await anext(trainer.events(after="yesterday"))


async def test_a_stream_that_a_gateway_refuses_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    refused = {"/v1/runs/math/events": ("HTTP/1.1 403 Forbidden", "no streams here")}
    page = '{"events":[],"next_after":"0-0"}'
    async with (
        another_server("HTTP/1.1 200 OK", "content-type: application/json", body=page, refusals=refused) as url,
        AsyncTrainer(url, run="math") as trainer,
    ):

        async def follow() -> list[RunEvent]:
            return [event async for event in trainer.events()]

        following = asyncio.create_task(follow())
        await wait_until(lambda: "no streams here. The events are asked for again in 1 s" in caplog.text)
        assert not following.done()
        following.cancel()


@pytest.mark.parametrize(
    "text",
    ["id: 5-0\nevent: run changed\n", "id: 5-0\ndata: <html>\n\n", 'id: 5-0\ndata: {"id":"5-0"}\n\n'],
    ids=["breaks off", "no JSON", "incomplete"],
)
async def test_an_event_that_is_not_whole_is_asked_for_again(text: str) -> None:
    """The id comes before the rest of the event, and names what the follower has only at its end."""
    stream, asked = "/v1/runs/math/events?after=4-0", list[str]()
    begun = {stream: ("HTTP/1.1 200 OK", text)}
    page = '{"events":[],"next_after":"4-0"}'
    async with (
        another_server("HTTP/1.1 200 OK", body=page, refusals=begun, asked=asked) as url,
        AsyncTrainer(url, run="math") as trainer,
        aclosing(trainer.events(after="4-0")) as events,
    ):
        following = asyncio.ensure_future(anext(events))
        await wait_until(lambda: asked.count(stream) == 2)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert not [path for path in asked if "5-0" in path]


async def test_threads_follow_a_run_too(run: Settings) -> None:
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
    with Trainer(run) as trainer:
        batch = await asyncio.to_thread(trainer.take)
        assert batch is not None
        await asyncio.to_thread(batch.ack)
        events = await asyncio.to_thread(lambda: list(islice(trainer.events(after="0"), 7)))
        kinds = [event.kind for event in events]
        assert kinds[0] == "run created"
        assert kinds.index("batch taken") < kinds.index("batch acknowledged")
        assert events[kinds.index("batch taken")].model_dump()["batch"] == batch.info.batch
