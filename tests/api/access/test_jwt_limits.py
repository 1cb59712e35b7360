"""Limits of JWTs: a rule gives them to each subject. A limit of one each 1,000 s decides alike on any machine."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from app.store.redis.scripts import load
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings
from tests.api.access.conftest import Tokens, bearer
from tests.api.conftest import Start
from tests.issuer import AUDIENCE, Issuer, running
from tests.scenarios.native_calls import RUN, group, make_run, trained

SLOW = 0.001
GROUPS = f"{RUN}/groups"
RULES = """
[[rule]]
claim = "groups"
value = "rl-operators"
role = "operator"

[[rule]]
claim = "sub"
value = "slow-*"
role = "environment"
runs = ["run"]
max_requests_per_s = 0.001

[[rule]]
claim = "sub"
value = "full-*"
role = "environment"
runs = ["run"]
max_queued_groups = 2

[[rule]]
claim = "sub"
value = "free"
role = "environment"
runs = ["run"]
"""


class Service:
    """Two API processes that trust an issuer, and a run."""

    def __init__(self, issuer: Issuer, processes: list[httpx.AsyncClient]) -> None:
        self.processes = processes
        self.issuer = issuer

    def sender(self, subject: str) -> dict[str, str]:
        """The headers of a new JWT."""
        return bearer(self.issuer.sign(self.issuer.claims(sub=subject)))

    async def send(self, subject: str, *groups: dict[str, Any], process: int = 0) -> httpx.Response:
        """Submit groups with a new JWT of a subject."""
        return await self.processes[process].post(GROUPS, json={"groups": groups}, headers=self.sender(subject))


@pytest.fixture
async def service(start: Start, redis_client: Redis, tmp_path: Path) -> AsyncIterator[Service]:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    async with running(Issuer()) as issuer:
        trust = {"jwt_issuer": issuer.issuer, "jwt_audience": AUDIENCE, "jwt_rules": rules}
        processes = [await start(**trust), await start(**trust)]
        for client in processes:
            client.headers.update(bearer(issuer.sign(issuer.claims(groups=["rl-operators"]))))
        await make_run(processes[0])
        yield Service(issuer, processes)


def refusal(reply: httpx.Response, code: str) -> str:
    assert (reply.status_code, reply.json()["code"]) == (429, code), reply.text
    assert int(reply.headers["retry-after"]) >= 1
    return str(reply.json()["detail"])


async def test_each_subject_has_the_limit_of_its_rule_over_all_processes(
    service: Service, tokens: Tokens, redis_client: Redis
) -> None:
    assert (await service.send("slow-1", group("a"))).status_code == 201
    for process in (0, 1):
        detail = refusal(await service.send("slow-1", group("b"), process=process), "rate_limited")
        assert detail == "jwt 'slow-1' has reached max_requests_per_s=0.001"
    assert (await service.send("slow-2", group("b"))).status_code == 201, "another subject"
    limits = RateLimitSettings(max_requests_per_s=SLOW)
    token = bearer(await tokens.make("environment", "run", name="slow-1", limits=limits))
    assert (await service.processes[0].post(GROUPS, json=group("c"), headers=token)).status_code == 201, "a token"
    assert (await service.send("slow-" + "x/: *\U0001f600" * 80, group("d"))).status_code == 201
    keys = [key.decode() for key in await redis_client.keys("lachesis:*:used:*")]
    pattern = r"lachesis:\d+:used:(jwt:[0-9a-f]{32}|token:[0-9a-f]{12}):max_requests_per_s:0\.001"
    assert len(keys) == 4
    assert [key for key in keys if not re.fullmatch(pattern, key)] == []


async def test_the_queue_of_a_subject_counts_over_names_and_processes(
    service: Service, tokens: Tokens, redis_client: Redis
) -> None:
    operator = service.processes[0]

    async def join(name: str) -> int:
        body = {"name": name, "group_size": 2}
        reply = await operator.post(f"{RUN}/environments", json=body, headers=service.sender("full-1"))
        assert reply.is_success, reply.text
        return int(reply.json()["id"])

    names = [await join(f"name{n}") for n in range(3)]
    for n, process in ((0, 0), (1, 1)):
        sent = group(f"g{n}", environment=names[n])
        assert (await service.send("full-1", sent, process=process)).status_code == 201
    detail = refusal(await service.send("full-1", group("g2", environment=names[2])), "queue_full")
    assert detail.startswith("max_queued_groups=2 of jwt 'full-1' leaves no room: it has 2 groups queued")
    assert (await service.send("full-2", group("a"))).status_code == 201, "another subject"
    queue = QueueLimitSettings(max_queued_groups=1)
    token = bearer(await tokens.make("environment", "run", name="full-1", queue_limits=queue))
    assert (await operator.post(GROUPS, json=group("b"), headers=token)).status_code == 201, "a token of this name"
    counted = await redis_client.hgetall(RunKeys("run").token_queues)  # type: ignore[misc]
    assert sorted(len(name) for name in counted) == [12, len("jwt:") + 32, len("jwt:") + 32]
    assert [one["id"] for one in (await trained(operator))["groups"]] == ["g0", "g1"]
    assert (await service.send("full-1", group("g2", environment=names[2]))).status_code == 201


async def test_a_rule_without_limits_costs_no_command(service: Service, redis_client: Redis) -> None:
    digest = load("count_use").digest
    async with redis_client.monitor() as monitor:

        async def touched() -> list[str]:
            """The commands about limits since the last time."""
            await redis_client.echo("end")
            found = []
            while not (command := str((await monitor.next_command())["command"])).startswith("ECHO"):
                if digest in command or (":token_" in command and not command.startswith("EVALSHA")):
                    found.append(command.split()[0].upper())
            return found

        assert (await service.send("free", group("a"))).status_code == 201
        assert await touched() == []
        assert (await service.send("slow-1", group("b"))).status_code == 201
        assert await touched() == ["EVALSHA"]
