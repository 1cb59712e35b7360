"""What a token may have in the queue of a run, against the real service: a hijacked worker and an honest one."""

import asyncio
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from lachesis import AsyncEnvironment
from lachesis.errors import QueueFull
from lachesis.wire.limits import QueueLimitSettings
from tests.api.access.conftest import Tokens, bearer, id_of
from tests.api.atropos_calls import group as atropos_group
from tests.api.conftest import Start
from tests.clients.run import group as sdk_group
from tests.scenarios.native_calls import RUN, group, make_run, submit, trained
from tests.waiting import wait_until

GROUPS = f"{RUN}/groups"


class Service:
    """A service with a run, as an operator and as workers with tokens of their own."""

    def __init__(self, operator: httpx.AsyncClient, other: httpx.AsyncClient) -> None:
        self.operator = operator
        self.other = other
        """Another API process."""

    async def token(self, **asked: Any) -> dict[str, Any]:
        reply = await self.operator.post("/v1/tokens", json={"role": "environment", "runs": ["run"], **asked})
        assert reply.status_code == 201, reply.text
        made: dict[str, Any] = reply.json()
        return made

    async def listed(self, token: dict[str, Any]) -> dict[str, Any]:
        listed = (await self.operator.get("/v1/tokens")).json()["tokens"]
        return next(one for one in listed if one["id"] == token["id"])

    async def join(self, token: dict[str, Any], name: str) -> int:
        reply = await self.operator.post(
            f"{RUN}/environments", json={"name": name, "group_size": 2}, headers=bearer(token["token"])
        )
        assert reply.status_code in (200, 201), reply.text
        return int(reply.json()["id"])


@pytest.fixture
async def service(start: Start, tokens: Tokens) -> Service:
    own = bearer(await tokens.make("operator"))
    operator, other = await start(), await start()
    for client in (operator, other):
        client.headers.update(own)
    await make_run(operator)
    return Service(operator, other)


async def send(client: httpx.AsyncClient, token: dict[str, Any], *groups: dict[str, Any]) -> httpx.Response:
    return await client.post(GROUPS, json={"groups": groups}, headers=bearer(token["token"]))


def refusal(reply: httpx.Response) -> str:
    assert (reply.status_code, reply.json()["code"]) == (429, "queue_full"), reply.text
    assert int(reply.headers["retry-after"]) >= 1
    return str(reply.json()["detail"])


async def test_a_token_at_its_limit_waits_for_batches_and_others_do_not(service: Service) -> None:
    client = service.operator
    hijacked = await service.token(environment="gsm8k", max_queued_groups=3, max_queued_bytes=10**9)
    honest = await service.token(environment="code")
    assert (hijacked["max_queued_groups"], hijacked["max_queued_bytes"], hijacked["queued"]) == (3, 10**9, [])
    own, others = await service.join(hijacked, "gsm8k"), await service.join(honest, "code")

    def groups(*names: str, environment: int = own) -> list[dict[str, Any]]:
        return [group(name, environment=environment) for name in names]

    assert (await send(client, hijacked, *groups("a", "b"))).status_code == 201
    detail = refusal(await send(client, hijacked, *groups("c", "d")))
    assert detail.startswith(f"max_queued_groups=3 of token {hijacked['id']} (environment 'gsm8k') leaves no room")
    assert "it has 2 groups queued" in detail
    assert (await send(client, hijacked, *groups("c"))).status_code == 201
    assert (await send(client, hijacked, *groups("a"))).status_code == 201, "whose answer was lost"
    refusal(await send(client, hijacked, *groups("d")))
    assert (await send(client, honest, *groups("e", "f", "g", environment=others))).status_code == 201
    (there,) = (await service.listed(hijacked))["queued"]
    assert (there["run"], there["groups"]) == ("run", 3)
    assert there["bytes"] > 0
    assert (await service.listed(honest))["queued"] == []

    assert [one["id"] for one in (await trained(client))["groups"]] == ["a", "b"]
    assert (await send(client, hijacked, *groups("d", "h"))).status_code == 201
    rotated = (await client.post(f"/v1/tokens/{hijacked['id']}/rotate")).json()
    assert rotated["queued"][0]["groups"] == 3
    refusal(await send(client, hijacked, *groups("i")))
    assert (await client.delete(GROUPS, params={"size": 2})).status_code == 200
    assert (await service.listed(hijacked))["queued"] == []
    assert (await send(client, hijacked, *groups("i"))).status_code == 201


async def test_names_processes_and_surfaces_do_not_help_a_hijacked_worker(service: Service) -> None:
    """It may invent environments, send to each process and by each protocol, all at a time: the token counts."""
    hijacked = await service.token(max_queued_groups=5)
    names = [await service.join(hijacked, f"name{n}") for n in range(4)]
    atropos = "/runs/run/atropos/scored_data"

    async def one(number: int) -> int:
        client = (service.operator, service.other)[number % 2]
        if number % 3:
            reply = await send(client, hijacked, group(f"g{number}", environment=names[number % 4]))
        else:
            reply = await client.post(atropos, json=atropos_group(2, number), headers=bearer(hijacked["token"]))
        if reply.status_code in (200, 201):
            return 1
        refusal(reply)
        return 0

    assert sum(await asyncio.gather(*(one(number) for number in range(60)))) == 5
    assert (await service.listed(hijacked))["queued"][0]["groups"] == 5
    assert await submit(service.operator, "honest") == ["accepted"]


async def test_bytes_are_limited_and_a_body_above_the_limit_is_taken_alone(service: Service) -> None:
    hijacked = await service.token(max_queued_bytes=1000)
    large = {"metadata": {"note": "x" * 2000}}
    assert (await send(service.operator, hijacked, group("a", **large), group("b", **large))).status_code == 201
    assert f"max_queued_bytes=1000 of token {hijacked['id']} leaves no room" in refusal(
        await send(service.operator, hijacked, group("c"))
    )
    await trained(service.operator)
    assert (await send(service.operator, hijacked, group("c"))).status_code == 201
    refusal(await send(service.operator, hijacked, group("d", **large)))


async def test_the_sdk_waits_until_there_is_room(service: Service) -> None:
    token = await service.token(environment="gsm8k", max_queued_groups=2)
    url = str(service.operator.base_url).rstrip("/")
    async with AsyncEnvironment("gsm8k", url, run="run", token=token["token"]) as environment:
        for position in (1, 2):
            await environment.submit(sdk_group(position))
        await environment.flush()
        await environment.submit(sdk_group(3))
        await wait_until(lambda: isinstance(environment.trouble, QueueFull))
        assert f"token {token['id']}" in str(environment.trouble)
        assert (await service.operator.delete(GROUPS, params={"size": 1})).status_code == 200
        await environment.flush()
        assert environment.outcomes == {"accepted": 3}


async def test_a_token_without_a_limit_costs_no_command_more(start: Start, tokens: Tokens, redis_client: Redis) -> None:
    """Scripts get the keys, and do not use them. A batch asks once whether there is any token with a limit."""
    free, limited = [
        await tokens.make("environment", "run", queue_limits=limits)
        for limits in (None, QueueLimitSettings(max_queued_groups=100))
    ]
    operator = bearer(await tokens.make("operator"))
    client = await start()
    client.headers.update(operator)
    await make_run(client)
    async with redis_client.monitor() as monitor:

        async def touched() -> list[str]:
            """The commands about tokens' queues since the last time."""
            await redis_client.echo("end")
            found = []
            while not (command := str((await monitor.next_command())["command"])).startswith("ECHO"):
                if ":token_" in command and not command.startswith("EVALSHA"):
                    found.append(command.split()[0].upper())
            return found

        assert (await send(client, {"token": free}, group("a"), group("b"))).status_code == 201
        assert await touched() == []
        await trained(client)
        assert await touched() == ["EXISTS"]
        assert (await send(client, {"token": limited}, group("c"), group("d"))).status_code == 201
        assert sorted(await touched()) == ["HGET", "HSET", "HSET"]
        await trained(client)
        assert sorted(await touched()) == ["EXISTS", "HDEL", "HDEL", "HGET", "HMGET"]


async def test_a_token_keeps_its_limits_when_it_is_rotated(service: Service, tokens: Tokens) -> None:
    text = await tokens.make("environment", "run", queue_limits=QueueLimitSettings(max_queued_bytes=7))
    rotated = (await service.operator.post(f"/v1/tokens/{id_of(text)}/rotate")).json()
    assert (rotated["max_queued_groups"], rotated["max_queued_bytes"]) == (None, 7)


@pytest.mark.parametrize("name", ["max_queued_groups", "max_queued_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 2**53, "x", True, [1], {}])
async def test_other_values_are_refused(client: httpx.AsyncClient, name: str, value: Any) -> None:
    reply = await client.post("/v1/tokens", json={"role": "operator", name: value})
    assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, [name]), reply.text
    assert (await client.get("/v1/runs")).status_code == 200, "no token was made: the service is still open"
