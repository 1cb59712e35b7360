"""Rate limits against the real service. A limit of one each 1,000 s decides alike on any machine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest
from redis.asyncio import Redis

from app.store.access.rate_limits import of_run
from app.store.redis.keys import LIMITS, ServiceKeys
from app.store.redis.scripts import load
from lachesis import AsyncTrainer, Settings
from lachesis.errors import RateLimited
from tests.api.access.conftest import Tokens, bearer
from tests.api.atropos_calls import group as atropos_group
from tests.api.atropos_calls import register
from tests.api.conftest import Start
from tests.scenarios.native_calls import RUN, change_run, group, make_run, status, submit
from tests.waiting import wait_until

SLOW = 0.001
GROUPS = f"{RUN}/groups"


async def refused(client: httpx.AsyncClient, method: str, path: str, **sent: Any) -> str:
    reply = await client.request(method, path, **sent)
    assert (reply.status_code, reply.json()["code"]) == (429, "rate_limited"), reply.text
    assert int(reply.headers["retry-after"]) >= 1
    return str(reply.json()["detail"])


async def test_requests_of_a_run_are_limited_and_a_change_holds_at_once(client: httpx.AsyncClient) -> None:
    await make_run(client, max_requests_per_s=SLOW)
    assert (await client.get(RUN)).status_code == 200
    assert "run run has reached max_requests_per_s=0.001" in await refused(client, "GET", RUN)
    await make_run(client, name="other")
    assert (await client.get("/v1/runs/other")).status_code == 200
    assert (await client.delete("/v1/runs/other")).status_code == 204
    assert (await client.get("/v1/runs")).status_code == 200, "a request of no run"


async def test_a_change_holds_at_once(client: httpx.AsyncClient, redis_client: Redis) -> None:
    await make_run(client)
    await change_run(client, max_groups_per_s=SLOW)
    assert await submit(client, "a") == ["accepted"]
    await refused(client, "POST", GROUPS, json=group("b"))
    await change_run(client, max_groups_per_s=5)
    assert await submit(client, "b") == ["accepted"]
    await change_run(client, max_groups_per_s=None)
    assert await submit(client, *map(str, range(100))) == ["accepted"] * 100
    assert await submit(client, "c") == ["accepted"]
    assert await redis_client.hkeys(LIMITS) == [b"generation"]  # type: ignore[misc]


async def test_other_processes_learn_of_limits(start: Start) -> None:
    one, other = await start(), await start()
    await make_run(one, max_groups_per_s=SLOW)
    assert await submit(one, "a") == ["accepted"]

    async def is_refused() -> bool:
        return (await other.post(GROUPS, json=group("b"))).status_code == 429

    await wait_until(is_refused)
    third = await start()
    await refused(third, "POST", GROUPS, json=group("c"))
    assert (await one.delete(RUN)).status_code == 204
    await make_run(one)
    assert await submit(one, "d", "e") == ["accepted", "accepted"]


async def test_groups_are_counted_on_both_surfaces_and_a_list_may_exceed_the_burst(client: httpx.AsyncClient) -> None:
    await register(client)
    assert (await client.patch("/v1/runs/default", json={"max_groups_per_s": SLOW})).status_code == 200
    many = [atropos_group(2, n) for n in range(3)]
    accepted = await client.post("/scored_data_list", json=many)
    assert (accepted.status_code, accepted.json()["groups_processed"]) == (200, 3)
    await refused(client, "POST", "/scored_data_list", json=many)
    await refused(client, "POST", "/scored_data", json=many[0])
    assert (await client.get("/status")).json()["queue_size"] == 3


async def test_bytes_are_counted_by_the_announced_or_the_sent_size(client: httpx.AsyncClient) -> None:
    await make_run(client)
    text = orjson.dumps(group("a"))

    async def in_chunks() -> AsyncIterator[bytes]:
        yield text[:10]
        yield text[10:]

    json = {"Content-Type": "application/json"}
    for limit, content in ((1, lambda: text), (2, in_chunks)):
        await change_run(client, max_bytes_per_s=limit)
        first = await client.post(GROUPS, content=content(), headers=json)
        assert first.status_code == 201, first.text
        assert "max_bytes_per_s" in await refused(client, "POST", GROUPS, content=content(), headers=json)
        assert (await client.get(RUN)).status_code == 200, "no body, no bytes"
        await change_run(client, max_bytes_per_s=None)
    await change_run(client, max_bytes_per_s=2)
    used = (await status(client))["limits"][0]
    assert used["name"] == "max_bytes_per_s"
    assert used["used"] > 1


@asynccontextmanager
async def begun(
    client: httpx.AsyncClient, path: str, framing: str, body: bytes = b"", token: str = "x"
) -> AsyncIterator[asyncio.StreamReader]:
    """Send the headers of a request and some of its body. The connection ends at the end of the block."""
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", framing)
    head = "\r\n".join([*lines, f"Authorization: Bearer {token}", "", ""])
    writer.write(head.encode() + body)
    try:
        yield reader
    finally:
        writer.close()


async def test_a_body_that_is_only_announced_uses_up_no_limit_that_others_share(client: httpx.AsyncClient) -> None:
    await make_run(client, max_bytes_per_s=1_000_000)
    announced = f"Content-Length: {2**28}"
    async with begun(client, f"{RUN}/environments", announced) as small, begun(client, GROUPS, announced):
        assert b" 413 " in await small.readline()
        assert await submit(client, "a") == ["accepted"]
    async with begun(client, GROUPS, f"Content-Length: {2**40}") as large:
        assert b" 413 " in await large.readline()
    assert await submit(client, "b") == ["accepted"]


@pytest.mark.parametrize(
    ("framing", "body"),
    [("Content-Length: 4000000", b" " * 2**21), ("Transfer-Encoding: chunked", b"200000\r\n" + b" " * 2**21)],
    ids=["of known length", "in chunks"],
)
async def test_what_has_arrived_of_a_body_that_is_cut_off_counts_for_its_run(
    client: httpx.AsyncClient, framing: str, body: bytes
) -> None:
    """What the service had not read when the connection ended does not count: less than a MiB."""
    await make_run(client, max_bytes_per_s=1000)
    async with begun(client, GROUPS, framing, body):
        pass

    async def counts() -> bool:
        return bool((await status(client))["limits"][0]["used"] > 2**20 / 2000)

    await wait_until(counts)


async def test_a_body_in_chunks_is_refused_unread_while_the_limit_is_used_up(client: httpx.AsyncClient) -> None:
    await make_run(client, max_bytes_per_s=1)
    assert await submit(client, "a") == ["accepted"]
    async with begun(client, GROUPS, "Transfer-Encoding: chunked") as reader:
        assert b" 429 " in await reader.readline()


async def test_an_announced_body_counts_for_its_token_at_once(start: Start, tokens: Tokens) -> None:
    operator = bearer(await tokens.make("operator"))
    client = await start()
    await client.post("/v1/runs", json={"name": "run", "batch_size": 4}, headers=operator)
    asked = {"role": "environment", "runs": ["*"], "max_bytes_per_s": 1}
    token = (await client.post("/v1/tokens", json=asked, headers=operator)).json()["token"]
    async with begun(client, GROUPS, "Content-Length: 1000\r\nExpect: 100-continue", token=token) as reader:
        assert b" 100 " in await reader.readline()
        await refused(client, "POST", GROUPS, json=group("a"), headers=bearer(token))


async def test_a_token_has_limits_of_its_own(start: Start, tokens: Tokens) -> None:
    operator = bearer(await tokens.make("operator"))
    client = await start()
    asked = {"role": "environment", "runs": ["*"], "max_requests_per_s": SLOW}
    made = (await client.post("/v1/tokens", json=asked, headers=operator)).json()
    other = (await client.post("/v1/tokens", json=asked, headers=operator)).json()
    assert made["limits"] == [{"name": "max_requests_per_s", "per_s": SLOW, "used": 0}]
    await client.post("/v1/runs", json={"name": "run", "batch_size": 4}, headers=operator)
    sent = {"json": group("a"), "headers": bearer(made["token"])}
    assert (await client.post(GROUPS, **sent)).status_code == 201
    assert f"token {made['id']}" in await refused(client, "POST", GROUPS, **sent)
    assert (await client.post(GROUPS, json=group("b"), headers=bearer(other["token"]))).status_code == 201
    rotated = (await client.post(f"/v1/tokens/{made['id']}/rotate", headers=operator)).json()
    assert rotated["limits"][0]["used"] > 1
    sent = {"json": group("c"), "headers": bearer(rotated["token"])}

    async def is_known() -> bool:
        return (await client.post(GROUPS, **sent)).status_code != 401

    await wait_until(is_known)
    await refused(client, "POST", GROUPS, **sent)
    listed = (await client.get("/v1/tokens", headers=operator)).json()["tokens"]
    shown = {token["id"]: token["limits"] for token in listed}
    assert shown[made["id"]][0]["used"] > 1
    assert sum(map(len, shown.values())) == 2, "the operator has none"


async def test_of_token_and_run_all_limits_count_or_none(start: Start, tokens: Tokens) -> None:
    operator = bearer(await tokens.make("operator"))
    client = await start()
    run = {"name": "run", "batch_size": 4, "max_requests_per_s": 1000, "max_groups_per_s": SLOW}
    await client.post("/v1/runs", json=run, headers=operator)
    asked = {"role": "environment", "runs": ["*"], "max_groups_per_s": 1000}
    own = (await client.post("/v1/tokens", json=asked, headers=operator)).json()
    many = {"groups": [group(str(n)) for n in range(1500)]}
    sent = {"json": many, "headers": bearer(own["token"])}

    async def used() -> float:
        (found,) = [one for one in (await client.get("/v1/tokens", headers=operator)).json()["tokens"] if one["limits"]]
        return float(found["limits"][0]["used"])

    assert (await client.post(GROUPS, json=group("a"), headers=operator)).status_code == 201
    assert await used() == 0
    assert "run run has reached max_groups_per_s" in await refused(client, "POST", GROUPS, **sent)
    assert await used() == 0, "the run refused them, so the token has not used its limit"


async def test_a_refused_sender_uses_nothing_of_a_run(start: Start, tokens: Tokens) -> None:
    operator = bearer(await tokens.make("operator"))
    client = await start()
    run = {"name": "run", "batch_size": 4, "max_requests_per_s": SLOW}
    await client.post("/v1/runs", json=run, headers=operator)
    foreign, viewer = bearer(await tokens.make("viewer", "x")), bearer(await tokens.make("viewer", "run"))
    assert (await client.get(RUN, headers=foreign)).status_code == 404
    assert (await client.delete(f"{RUN}/groups", headers=viewer)).status_code == 403
    assert (await client.post(GROUPS, json=group("a"), headers=viewer)).status_code == 403
    assert (await client.get(RUN)).status_code == 401
    assert (await client.get(RUN, headers=viewer)).status_code == 200
    await refused(client, "GET", RUN, headers=viewer)


async def test_only_requests_with_limits_send_a_command_more(client: httpx.AsyncClient, redis_client: Redis) -> None:
    digest, limited = load("count_use").digest, "/v1/runs/limited"
    await make_run(client)
    await make_run(client, name="limited", max_requests_per_s=1000, max_bytes_per_s=10**6, max_groups_per_s=1000)
    async with redis_client.monitor() as monitor:

        async def counts() -> list[int]:
            """The number of limits in each call of the script since the last time."""
            await redis_client.echo("end")
            calls = []
            while not (command := str((await monitor.next_command())["command"])).startswith("ECHO"):
                if digest in command:
                    calls.append(int(command.split()[2]))
            return calls

        await submit(client, "a", "b")
        assert (await client.get(RUN)).status_code == 200
        assert await counts() == []
        assert (await client.get(limited)).status_code == 200
        assert await counts() == [1]
        body = orjson.dumps(group("a"))
        async with begun(client, f"{limited}/groups", f"Content-Length: {len(body)}", body) as reader:
            assert b" 201 " in await reader.readline()
        assert await counts() == [2, 1], "requests and bytes before the body is read, groups before they are stored"
        async with begun(client, f"{limited}/groups", "Transfer-Encoding: chunked", b"0\r\n\r\n") as reader:
            assert b" 400 " in await reader.readline()
        assert await counts() == [2], "no byte more has arrived"


async def test_the_sdk_waits_for_as_long_as_the_service_says(client: httpx.AsyncClient, redis_client: Redis) -> None:
    url = str(client.base_url).rstrip("/")
    await make_run(client, max_requests_per_s=1000)
    seconds, microseconds = await redis_client.time()
    arrival_us = 1_000_000 * seconds + microseconds + 4_000_000
    await redis_client.set(ServiceKeys().limit_use(of_run("run"), "max_requests_per_s", 1000.0), arrival_us)
    async with AsyncTrainer(url, run="run") as trainer:
        assert (await trainer.status()).run == "run"
    assert (await redis_client.time())[0] >= arrival_us // 1_000_000 - 2, "two seconds of the limit may be used at once"
    await redis_client.set(ServiceKeys().limit_use(of_run("run"), "max_requests_per_s", 1000.0), 10 * arrival_us)
    async with AsyncTrainer(Settings(url, run="run", retry_budget_s=0)) as trainer:
        with pytest.raises(RateLimited) as caught:
            await trainer.status()
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s > 1_000_000


@pytest.mark.parametrize("name", ["max_requests_per_s", "max_bytes_per_s", "max_groups_per_s"])
@pytest.mark.parametrize("value", [0, -1, 0.0001, 1e300, "x", True, [1], {}])
async def test_other_values_are_refused(client: httpx.AsyncClient, name: str, value: Any) -> None:
    await make_run(client)
    for method, path, body in (
        ("POST", "/v1/runs", {"name": "x", "batch_size": 4}),
        ("PATCH", RUN, {}),
        ("POST", "/v1/tokens", {"role": "operator"}),
    ):
        reply = await client.request(method, path, json=body | {name: value})
        assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, [name]), reply.text
    assert (await client.get("/v1/runs")).status_code == 200, "no token was made: the service is still open"
