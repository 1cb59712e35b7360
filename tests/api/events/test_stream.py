"""The events of a run over HTTP: as they happen, and page by page."""

import asyncio
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from tests.api.conftest import Start, running_service
from tests.api.events.streams import EVENTS, LONG_S, following
from tests.scenarios.native_calls import RUN, change_run, end, group, make_run, set_version, submit, taken
from tests.waiting import wait_until


async def page(client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    reply = await client.get(EVENTS, params=query)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


async def stored(client: httpx.AsyncClient, last: str) -> list[dict[str, Any]]:
    """Wait until an event of this kind is stored, and return all events."""

    async def there() -> bool:
        return last in [event["kind"] for event in (await page(client, limit=1000))["events"]]

    await wait_until(there)
    found: list[dict[str, Any]] = (await page(client, limit=1000))["events"]
    return found


async def test_a_run_tells_what_happens_in_order(client: httpx.AsyncClient) -> None:
    await make_run(client)
    async with following(client, f"{EVENTS}?after=0") as stream:
        assert stream.reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.reply.headers["cache-control"] == "no-store"
        assert stream.reply.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in stream.reply.headers
        await stream.until("run created")
        joined = (await client.post(f"{RUN}/environments", json={"name": "math", "member": "m"})).json()
        await submit(client, "a", "b")
        first = await taken(client, trainer="t")
        (await end(client, first)).raise_for_status()
        await submit(client, "c", "d")
        second = await taken(client)
        (await end(client, second, "nack", reason="no room")).raise_for_status()
        await change_run(client, max_staleness=1)
        await set_version(client, 3)
        (await client.post(f"{RUN}/checkpoints", json={"step": 1})).raise_for_status()
        (await client.delete(f"{RUN}/environments/{joined['id']}?member=m")).raise_for_status()
        found = [event for event in await stream.until("member left") if event["kind"] != "groups dropped"]
    kinds = [event["kind"] for event in found]
    assert kinds == [
        "environment joined",
        "member joined",
        "batch taken",
        "batch acknowledged",
        "batch taken",
        "batch given back",
        "run changed",
        "policy version set",
        "checkpoint reported",
        "member left",
    ]
    told = found[2]
    fields = {"batch": first["batch"], "step": 1, "groups": 2, "trainer": "t"}
    assert {name: told[name] for name in told if name not in ("id", "time_s", "kind")} == fields
    assert found[7] | {"policy_version": 3, "dropped_groups": 0} == found[7]
    assert found[5] | {"batch": second["batch"], "reason": "no room"} == found[5]
    ids = [tuple(map(int, event["id"].split("-"))) for event in found]
    assert ids == sorted(set(ids))
    assert all(abs(event["time_s"] - ids[n][0] / 1000) < LONG_S for n, event in enumerate(found))
    assert [event for event in (await page(client, limit=1000))["events"] if event in found] == found


async def test_a_client_that_comes_back_misses_nothing_and_gets_nothing_twice(client: httpx.AsyncClient) -> None:
    await make_run(client)
    everything = []
    after = {}
    for number in range(3):
        (await client.post(f"{RUN}/environments", json={"name": f"e{number}", "member": "m"})).raise_for_status()
        async with following(client, f"{EVENTS}?after=0", **after) as stream:
            for event in await stream.until("member joined"):
                everything.append(event)
                after = {"Last-Event-ID": event["id"]}
    assert [event["kind"] for event in everything] == ["run created", *["environment joined", "member joined"] * 3]
    assert everything == (await page(client))["events"]


async def test_pages_follow_each_other_and_the_last_one_says_where_to_go_on(client: httpx.AsyncClient) -> None:
    await make_run(client)
    for number in range(5):
        (await client.post(f"{RUN}/environments", json={"name": f"e{number}", "member": "m"})).raise_for_status()
    wanted = 11

    async def all_there() -> bool:
        return len((await page(client, limit=1000))["events"]) == wanted

    await wait_until(all_there)
    found: list[Any] = []
    query: dict[str, Any] = {}
    while (read := await page(client, limit=4, **query))["events"]:
        found += read["events"]
        query = {"after": read["next_after"]}
    assert found == (await page(client, limit=1000))["events"]
    assert read["next_after"] == found[-1]["id"]
    by_time = await page(client, after=found[4]["id"].partition("-")[0], limit=1000)
    assert by_time["events"][-1] == found[-1]


@pytest.mark.parametrize("wrong", ["x", "-1", "1-", "1" * 16, "1-2-3", "1\u0662"])
async def test_a_wrong_id_is_refused_with_its_place(client: httpx.AsyncClient, wrong: str) -> None:
    await make_run(client)
    replies = {
        ("query", "after"): await client.get(EVENTS, params={"after": wrong}),
        ("header", "last-event-id"): await client.get(EVENTS, headers={"Last-Event-ID": wrong.encode()}),
    }
    for place, reply in replies.items():
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_field")
        (error,) = reply.json()["errors"]
        assert tuple(error["loc"]) == place
        assert "is neither the id of an event nor a time in ms since 1970" in error["msg"]


@pytest.mark.parametrize(
    ("accept", "is_stream"),
    [
        ("*/*", False),
        ("text/event-stream", True),
        ("text/event-stream, */*", True),
        ("application/json, text/event-stream;q=0.5", False),
        ("application/json, text/plain, */*", False),
        ("text/html, */*;q=0.8", False),
        ("text/event-stream, application/json", True),
    ],
)
async def test_the_accepted_type_decides(client: httpx.AsyncClient, accept: str, is_stream: bool) -> None:
    await make_run(client)
    async with following(client, accept=accept) as stream:
        kind = "text/event-stream" if is_stream else "application/json"
        assert stream.reply.headers["content-type"].startswith(kind)


async def test_neither_type_is_not_acceptable(client: httpx.AsyncClient) -> None:
    await make_run(client)
    reply = await client.get(EVENTS, headers={"Accept": "text/csv"})
    assert reply.status_code == 406


async def test_a_stream_ends_with_its_run(client: httpx.AsyncClient) -> None:
    await make_run(client)
    async with following(client) as stream:
        (await client.delete(RUN)).raise_for_status()
        await stream.until("run deleted")
        assert await stream.event() is None
    assert (await client.get(EVENTS)).status_code == 404


@pytest.mark.parametrize("pause_s", [0, 0.3])
async def test_a_run_that_is_made_again_soon_begins_with_its_own_events(
    client: httpx.AsyncClient, pause_s: float
) -> None:
    """Those who follow the former run learn that it is gone, even if no look at the events finds it gone."""
    await make_run(client)
    await submit(client, "a", "b")
    async with following(client) as former:
        await taken(client)
        (await client.delete(RUN)).raise_for_status()
        await asyncio.sleep(pause_s)
        await make_run(client)
        assert [event["kind"] for event in await stored(client, "run created")] == ["run created"]
        assert (await page(client, after="0", limit=1))["events"][0]["kind"] == "run created"
        async with following(client, f"{EVENTS}?after=0") as stream:
            assert len(await stream.until("run created")) == 1
        await former.until("run deleted")


async def test_streams_end_when_the_service_does(redis_url: str, redis_client: Redis) -> None:
    async with running_service(redis_url) as client:
        await make_run(client)
        held = following(client)
        stream = await held.__aenter__()
    while await stream.event() is not None:
        pass
    await held.__aexit__(None, None, None)


async def test_events_of_one_process_reach_the_clients_of_another(start: Start) -> None:
    one, other = await start(), await start()
    await make_run(one)
    async with following(other) as stream:
        await submit(one, "a", "b")
        batch = await taken(one)
        assert (await stream.until("batch taken"))[-1]["batch"] == batch["batch"]


async def test_dropped_groups_add_up_to_what_the_status_says(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=8)
    await submit(client, *(group(f"g{n}") for n in range(5)))
    (await client.delete(f"{RUN}/groups", params={"size": 2})).raise_for_status()
    dropped = [event for event in await stored(client, "groups dropped") if event["kind"] == "groups dropped"]
    assert sum(event["groups"] for event in dropped) == 5
    assert {event["reason"] for event in dropped} == {"deleted"}
    assert [sum(event["environments"].values()) for event in dropped] == [event["groups"] for event in dropped]


async def test_an_alert_is_an_event_when_it_is_raised_and_when_it_is_cleared(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4)
    async with following(client) as stream:
        await submit(client, group("large", size=5))
        raised = (await stream.until("alert raised"))[-1]
        assert raised["alert"] == "groups_too_large"
        assert "have 5 sequences" in raised["detail"]
        await change_run(client, batch_size=5)
        assert (await stream.until("alert cleared"))[-1]["alert"] == "groups_too_large"


async def test_hostile_text_stays_inside_its_event(client: httpx.AsyncClient) -> None:
    await make_run(client)
    hostile = "\n\ndata: {}\r\nevent: x\n\n<script>\u202e\u2028\x1b[31m"
    await submit(client, "a", "b")
    async with following(client) as stream:
        batch = await taken(client)
        (await end(client, batch, "nack", reason=hostile)).raise_for_status()
        assert (await stream.until("batch given back"))[-1]["reason"] == hostile


async def test_a_stream_tells_of_changes_of_all_kinds_to_who_asks(client: httpx.AsyncClient) -> None:
    await make_run(client)
    (await client.post(f"{RUN}/environments", json={"name": "math", "member": "m"})).raise_for_status()
    changes = [
        client.post(f"{RUN}/environments/0/heartbeat", json={"member": "m", "running_groups": 1}),
        client.patch(RUN, json={"max_staleness": 7}),
        client.put(f"{RUN}/replay", json={"max_chunks": 20}),
        client.put(f"{RUN}/curricula/tasks", json={"strategy": "learnability"}),
        client.post(f"{RUN}/curricula/tasks/items", json={"items": ["x"]}),
        client.post(f"{RUN}/groups", json={"groups": [group("a")]}),
    ]
    async with following(client, f"{EVENTS}?changes=true") as stream, following(client) as other:
        told = [(await stream.until("changed"))[-1]["revision"]]
        for change in changes:
            (await change).raise_for_status()
            while (found := (await stream.until("changed"))[-1]["revision"]) in told:
                pass
            told.append(found)
        (await client.delete(RUN)).raise_for_status()
        assert "changed" not in [event["kind"] for event in await other.until("run deleted")]
