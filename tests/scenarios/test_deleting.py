"""An operator deletes queued groups, by id or by filter, and the counts still add up."""

from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from tests.api.atropos_calls import group as atropos_group
from tests.api.atropos_calls import post, register, register_env
from tests.scenarios.native_calls import (
    RUN,
    end,
    group,
    ids,
    make_run,
    set_version,
    status,
    submit,
    taken,
    trained,
)
from tests.services.accounting import books_once_settled

GROUPS = f"{RUN}/groups"


async def delete(client: httpx.AsyncClient, **filters: Any) -> dict[str, Any]:
    reply = await client.delete(GROUPS, params=filters)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def joined(client: httpx.AsyncClient, name: str = "math") -> int:
    reply = await client.post(f"{RUN}/environments", json={"name": name, "group_size": 2})
    assert reply.status_code == 201, reply.text
    return int(reply.json()["id"])


async def test_a_group_that_waits_is_deleted_and_counted(client: httpx.AsyncClient, redis_client: Redis) -> None:
    await make_run(client, batch_size=2)
    await submit(client, "bad", "good")
    for _ in range(2):  # the answer to the first may be lost
        reply = await client.delete(f"{GROUPS}/bad")
        assert (reply.status_code, reply.content) == (204, b"")
    assert ids(await trained(client)) == ["good"]
    assert (await status(client))["dropped"] == {"deleted": 1}
    gone = (await client.get(f"{GROUPS}/bad")).json()
    assert (gone["state"], gone["reason"]) == ("dropped", "deleted")
    assert await submit(client, "bad") == ["accepted"], "it was, the first time"
    books = await books_once_settled(redis_client, "run")
    assert (books["queued"], books["dropped"], books["delivered"]) == (set(), {"deleted": 1}, 1)


async def test_only_queued_groups_are_deleted(
    client: httpx.AsyncClient,
) -> None:
    await make_run(client, batch_size=2, max_staleness=0)
    assert (await client.delete(f"{GROUPS}/a")).json()["code"] == "group_not_found"
    await submit(client, group("a", policy_version=0), group("old", policy_version=0))
    batch = await taken(client)
    await set_version(client, 1)

    async def refusal(name: str) -> str:
        problem = (await client.delete(f"{GROUPS}/{name}")).json()
        assert (problem["status"], problem["code"]) == (409, "group_not_waiting")
        return str(problem["detail"])

    assert f"batch {batch['batch']}" in await refusal("a")
    assert "stale" in await refusal("old")
    assert (await end(client, batch)).status_code == 200
    assert "delivered" in await refusal("a")


async def test_a_buffered_group_of_an_atropos_environment_is_deleted(
    client: httpx.AsyncClient, redis_client: Redis
) -> None:
    await register(client)
    environment = (await register_env(client))["env_id"]
    assert (await post(client, atropos_group(1, env_id=environment)))["status"] == "buffered"
    reply = await client.delete("/v1/runs/default/groups", params={"environment": environment})
    assert reply.json() == {"deleted_groups": 1, "left_groups": 0, "cursor": None}
    assert (await books_once_settled(redis_client, "default"))["dropped"] == {"deleted": 1}


async def test_what_a_filter_finds_is_deleted_and_nothing_else(client: httpx.AsyncClient, redis_client: Redis) -> None:
    await make_run(client, batch_size=100)
    math, code = await joined(client), await joined(client, "code")
    await set_version(client, 5)
    await submit(
        client,
        *(group(f"math{n}", environment=math, policy_version=n % 3) for n in range(6)),
        *(group(f"large{n}", size=3, environment=math, policy_version=n) for n in range(3)),
        *(group(f"code{n}", environment=code, policy_version=0) for n in range(2)),
        group("nobody"),
    )
    old = {"environment": math, "older_than_version": 2}
    assert await delete(client, **old, dry_run=True) == {"deleted_groups": 6, "left_groups": 0, "cursor": None}
    assert (await status(client))["groups"]["queued"] == 12, "a dry run deletes none"
    assert await delete(client, **old) == {"deleted_groups": 6, "left_groups": 0, "cursor": None}
    assert (await delete(client, environment=math, size=3))["deleted_groups"] == 1
    assert (await delete(client, size=7))["deleted_groups"] == 0
    assert (await delete(client, environment="none"))["deleted_groups"] == 1
    assert (await delete(client, older_than_version=1))["deleted_groups"] == 2
    books = await books_once_settled(redis_client, "run")
    assert (len(books["queued"]), books["dropped"]) == (2, {"deleted": 10})


@pytest.mark.parametrize("others", [{}, {"environment": "math"}, {"size": 2}])
async def test_what_the_list_finds_is_what_is_deleted(client: httpx.AsyncClient, others: dict[str, Any]) -> None:
    """Each filter of the list is a filter of the deletion: of these groups, each filter finds the two marked ones."""
    await make_run(client, batch_size=2)
    await joined(client)
    await set_version(client, 5)
    plain = {"environment": 0, "policy_version": 4, "scores": [0.0, 0.0]}
    bad = {"environment": 0, "policy_version": 1, "scores": [1.0, 1.0], "item": "broken"}
    await submit(client, *(group(f"leased{n}", **bad) for n in range(1)))
    await taken(client)
    await submit(client, *(group(f"bad{n}", **bad) for n in range(2)), *(group(f"good{n}", **plain) for n in range(2)))

    async def listed(**filters: Any) -> list[str]:
        reply = await client.get(GROUPS, params={**others, **filters})
        assert reply.status_code == 200, reply.text
        return [one["id"] for one in reply.json()["groups"] if one["state"] == "queued"]

    for criterion in (
        {"item": "broken"},
        {"score_min": 0.5},
        {"staleness_min": 3},
        {"older_than_version": 2},
        {"score_min": 0.5, "score_max": 1.5, "state": "queued", "received_from_s": 1},
    ):
        assert sorted(await listed(**criterion)) == ["bad0", "bad1"], criterion
        assert (await delete(client, **others, **criterion, dry_run=True))["deleted_groups"] == 2, criterion
    for criterion in (
        *({"received_to_s": 1}, {"score_max": -1}, {"item": "brok"}, {"state": "buffered"}),
        *({"state": "leased"}, {"dropped": "stale"}, {"step_min": 0}),
    ):
        assert await listed(**criterion) == []
        assert (await delete(client, **others, **criterion))["deleted_groups"] == 0, criterion
    assert (await status(client))["groups"]["queued"] == 4
    assert (await delete(client, **others, item="broken"))["deleted_groups"] == 2
    assert sorted(await listed()) == ["good0", "good1"]
    states = {one["id"]: one["state"] for one in (await client.get(GROUPS, params={"item": "broken"})).json()["groups"]}
    assert states["leased0"] == "leased", "a group in a batch stays"


async def test_an_environment_that_is_not_there_is_no_filter(client: httpx.AsyncClient) -> None:
    await make_run(client)
    await submit(client, "a")
    reply = await client.delete(GROUPS, params={"environment": "maths"})
    assert (reply.status_code, reply.json()["code"]) == (404, "environment_not_found")
    assert (await status(client))["groups"]["queued"] == 1


async def test_one_call_deletes_a_page_of_groups(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=100)
    await set_version(client, 1)
    await submit(client, *(group(f"{n}", size=1 + n % 3, policy_version=n % 2) for n in range(12)))
    first = await delete(client, older_than_version=1, limit=5)
    assert (first["left_groups"], first["deleted_groups"]) == (7, 2)
    answer, deleted = first, first["deleted_groups"]
    while answer["cursor"] is not None:
        answer, before = await delete(client, older_than_version=1, limit=5, cursor=answer["cursor"]), answer
        assert before["left_groups"] - 5 <= answer["left_groups"] < before["left_groups"]
        deleted += answer["deleted_groups"]
    assert (answer["left_groups"], deleted) == (0, 6)
    assert (await status(client))["groups"]["queued"] == 6


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ({}, "query"),
        ({"limit": 5}, "query"),
        ({"environment": ""}, "environment"),
        ({"state": "waiting"}, "state"),
        ({"score_min": "nan"}, "score_min"),
        ({"size": 0}, "size"),
        ({"older_than_version": -1}, "older_than_version"),
        ({"size": 1, "limit": 0}, "limit"),
        ({"size": 1, "dry_run": "perhaps"}, "dry_run"),
        ({"size": 1, "cursor": "queued:0:1"}, "cursor"),
        ({"size": 1, "cursor": "leased:0:1:1"}, "cursor"),
        ({"size": 1, "cursor": "queued:" + "9" * 4000}, "cursor"),
        ({"sise": 1}, "sise"),
    ],
)
async def test_without_a_valid_filter_nothing_is_deleted(
    client: httpx.AsyncClient, query: dict[str, Any], where: str
) -> None:
    await make_run(client)
    await submit(client, "a")
    reply = await client.delete(GROUPS, params=query)
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_field")
    assert where in reply.json()["detail"]
    assert (await status(client))["groups"]["queued"] == 1


async def test_groups_of_a_run_that_is_not_there_cannot_be_deleted(client: httpx.AsyncClient) -> None:
    assert (await client.delete(GROUPS, params={"size": 1})).json()["code"] == "run_not_found"
    assert (await client.delete(f"{GROUPS}/a")).json()["code"] == "run_not_found"
