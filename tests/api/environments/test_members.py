"""One environment, many workers: what each says is its own, and the environment is what they are together."""

import asyncio
import gzip
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.store.environments.members import MOST_MEMBERS
from app.store.redis.keys import RunKeys
from lachesis.wire.environments import MOST_RETRIES, MOST_RUNNING
from lachesis.wire.limits import MAX_BATCH_SIZE
from tests.api.atropos_calls import batch, register, register_env
from tests.api.conftest import Start
from tests.api.log_capture import LogLines
from tests.waiting import wait_until

ENVIRONMENTS = "/v1/runs/r/environments"
PLACE = f"{ENVIRONMENTS}/0"


@pytest.fixture
async def run(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A service with a run that wants two groups of four sequences for each batch, none of them in advance."""
    await make_run(client)
    return client


async def make_run(client: httpx.AsyncClient) -> None:
    await client.post("/v1/runs", json={"name": "r", "batch_size": 8, "max_staleness": 0})


async def join(client: httpx.AsyncClient, member: str, **settings: Any) -> httpx.Response:
    return await client.post(ENVIRONMENTS, json={"name": "math", "group_size": 4, "member": member} | settings)


async def beat(client: httpx.AsyncClient, member: str, **said: Any) -> dict[str, Any]:
    reply = await client.post(f"{PLACE}/heartbeat", json={"member": member} | said)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def leave(client: httpx.AsyncClient, member: str) -> int:
    return (await client.delete(PLACE, params={"member": member})).status_code


async def shown(client: httpx.AsyncClient) -> dict[str, Any]:
    (environment,) = (await client.get("/v1/runs/r/status")).json()["environments"]
    return dict(environment)


async def milliseconds(redis: Redis) -> int:
    """Return the time that Redis has, as the run clock counts it."""
    seconds, microseconds = await redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


async def listed(client: httpx.AsyncClient, field: str) -> dict[str, Any]:
    members = (await client.get(f"{PLACE}/members")).json()["members"]
    return {one["member"]: one[field] for one in members}


async def submit(client: httpx.AsyncClient, name: str) -> None:
    sent = {"id": name, "environment": 0, "tokens": [[1]] * 4, "masks": [[1]] * 4, "scores": [1.0] * 4}
    assert (await client.post("/v1/runs/r/groups", json=sent)).status_code == 201


async def test_when_one_member_leaves_the_environment_stays(run: httpx.AsyncClient) -> None:
    for member in ("one", "two"):
        await join(run, member, min_share=0.5)
    assert await leave(run, "one") == 204
    environment = await shown(run)
    assert (environment["alive"], environment["connected"], environment["members"]) == (True, True, 1)
    assert environment["needs_sequences"] == 4, "its minimum binds"
    assert 'lachesis_environment_members{run="r"} 1.0' in (await run.get("/metrics")).text.splitlines()
    assert await leave(run, "two") == 204
    environment = await shown(run)
    assert (environment["alive"], environment["connected"], environment["members"]) == (False, False, 0)
    assert environment["needs_sequences"] == 0


async def test_a_join_makes_the_environment_or_finds_it_and_answers_the_members_id(run: httpx.AsyncClient) -> None:
    first, second = await join(run, "one"), await run.post(ENVIRONMENTS, json={"name": "math"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["member"] == "one"
    assert second.json()["member"] not in ("", "one")
    assert (await shown(run))["members"] == 2
    again = await join(run, "one")
    assert (again.status_code, again.json()["members"]) == (200, 2), "it is the same member"


async def test_a_join_with_other_settings_is_refused_with_both_values(run: httpx.AsyncClient) -> None:
    await join(run, "one", min_share=0.25)
    refused = await join(run, "two", group_size=8, min_share=0.5)
    assert (refused.status_code, refused.json()["code"]) == (409, "environment_settings_differ")
    assert "group_size is 4, not 8, min_share is 0.25, not 0.5" in refused.json()["detail"]
    assert "change_settings" in refused.json()["detail"]
    environment = await shown(run)
    assert (environment["group_size"], environment["share_promised"], environment["members"]) == (4, 0.25, 1)


async def test_a_refusal_says_why_however_long_the_name_is(run: httpx.AsyncClient) -> None:
    named = {"name": "n" * 4096, "group_size": 4}
    assert (await run.post(ENVIRONMENTS, json=named)).status_code == 201
    refused = await run.post(ENVIRONMENTS, json={**named, "group_size": 8})
    assert f"environment {'n' * 77}... has other members: group_size is 4, not 8" in refused.json()["detail"]


async def test_settings_that_a_join_leaves_out_stay_as_they_are(run: httpx.AsyncClient) -> None:
    await join(run, "one", min_share=0.25)
    await run.patch(PLACE, json={"weight": 3.0})
    await run.post(ENVIRONMENTS, json={"name": "math"})
    environment = await shown(run)
    assert (environment["group_size"], environment["share_promised"], environment["weight"]) == (4, 0.25, 3.0)


async def test_a_join_may_change_the_settings_of_all(run: httpx.AsyncClient) -> None:
    await join(run, "one", min_share=0.25)
    assert (await join(run, "two", min_share=0.5, change_settings=True)).status_code == 200
    assert (await shown(run))["share_promised"] == 0.5


async def test_the_next_member_sets_an_empty_environment(
    run: httpx.AsyncClient,
) -> None:
    await join(run, "one", min_share=0.25)
    await leave(run, "one")
    assert (await join(run, "two", min_share=0.5)).status_code == 200
    assert (await shown(run))["share_promised"] == 0.5


async def test_groups_that_members_run_add_up(run: httpx.AsyncClient) -> None:
    for member in ("one", "two"):
        await join(run, member)
    assert (await beat(run, "one", running_groups=1))["credits_groups"] == 1
    assert (await beat(run, "two", running_groups=1))["credits_groups"] == 0
    assert (await beat(run, "one"))["credits_groups"] == 0, "as many as it said before"
    assert (await shown(run))["running_groups"] == 2
    await leave(run, "two")
    assert (await beat(run, "one"))["credits_groups"] == 1


async def test_eight_members_that_ask_at_once_start_two_groups_where_two_are_wanted(run: httpx.AsyncClient) -> None:
    members = [f"m{n}" for n in range(8)]
    for member in members:
        await join(run, member)
    answers = await asyncio.gather(*(beat(run, member, running_groups=0, start_groups=2) for member in members))
    assert sum(answer["granted_groups"] for answer in answers) == 2
    assert (await shown(run))["running_groups"] == 2
    assert {(await beat(run, member, start_groups=1))["granted_groups"] for member in members} == {0}


async def test_groups_started_are_asked_for_again_after_a_lost_answer(run: httpx.AsyncClient) -> None:
    await join(run, "one")
    for _ in range(2):
        assert (await beat(run, "one", running_groups=0, start_groups=2))["granted_groups"] == 2
    assert (await shown(run))["running_groups"] == 2


async def test_a_look_at_credits_changes_nothing(run: httpx.AsyncClient) -> None:
    await join(run, "one")
    await beat(run, "one", running_groups=1)
    assert (await run.get(f"{PLACE}/credits")).json()["credits_groups"] == 1
    for query in ({"member": "one"}, {"member": "one", "running_groups": "3"}):
        refused = await run.get(f"{PLACE}/credits", params=query)
        assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, ["query", "member"])
    assert (await shown(run))["running_groups"] == 1


async def test_members_are_listed_by_page(run: httpx.AsyncClient) -> None:
    for member in ("c", "a", "b"):
        await join(run, member)
    await beat(run, "b", running_groups=7)
    page = (await run.get(f"{PLACE}/members", params={"limit": 2})).json()
    assert [(one["member"], one["running_groups"]) for one in page["members"]] == [("a", 0), ("b", 7)]
    assert all(0 <= one["last_seen_age_s"] <= one["joined_age_s"] for one in page["members"])
    rest = (await run.get(f"{PLACE}/members", params={"limit": 2, "after": page["next_after"]})).json()
    assert ([one["member"] for one in rest["members"]], rest["next_after"]) == (["c"], None)


async def test_permits_are_the_running_groups_that_were_granted_to_a_member(run: httpx.AsyncClient) -> None:
    """The run wants two groups."""
    for member in ("asks", "waits", "takes"):
        await join(run, member)
    for member in ("asks", "waits"):
        await beat(run, member, running_groups=0, start_groups=2)
    await beat(run, "takes", running_groups=5)
    assert await listed(run, "permits") == {"asks": 2, "takes": 0, "waits": 0}
    assert await listed(run, "running_groups") == {"asks": 2, "takes": 5, "waits": 0}
    await beat(run, "asks", running_groups=3)
    assert (await listed(run, "permits"))["asks"] == 2, "it started another one without asking"
    for running, permits in ((1, 1), (0, 0), (3, 0)):
        await beat(run, "asks", running_groups=running)
        assert (await listed(run, "permits"))["asks"] == permits


async def test_retries_are_those_that_a_member_reported_last(run: httpx.AsyncClient) -> None:
    for member in ("old", "new"):
        await join(run, member)
        await beat(run, member, running_groups=1)
    assert await listed(run, "retries") == {"old": None, "new": None}
    for said, known in (({"retries": 0}, 0), ({"retries": MOST_RETRIES}, MOST_RETRIES), ({}, MOST_RETRIES)):
        await beat(run, "new", **said)
        assert await listed(run, "retries") == {"old": None, "new": known}
    await join(run, "new")
    assert (await listed(run, "retries"))["new"] is None, "its process has started again"


@pytest.mark.parametrize("retries", [-1, MOST_RETRIES + 1, 2**64, 1.5, "many", True, [1], {"a": 1}])
async def test_odd_retries_are_refused(run: httpx.AsyncClient, retries: object) -> None:
    await join(run, "one")
    refused = await run.post(f"{PLACE}/heartbeat", json={"member": "one", "retries": retries})
    assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, ["retries"])
    assert await listed(run, "retries") == {"one": None}


async def test_a_heartbeat_may_name_the_environment_that_its_id_stands_for(run: httpx.AsyncClient) -> None:
    """Ids begin with 0 again if the run is deleted and created."""
    await join(run, "one")
    body = {"member": "one", "running_groups": 2}
    other = await run.post(f"{PLACE}/heartbeat", params={"name": "logic"}, json=body)
    assert (other.status_code, other.json()["code"]) == (404, "environment_not_found")
    assert other.json()["detail"] == "environment 0 of run r is not 'logic'"
    assert (await shown(run))["running_groups"] == 0
    same = await run.post(f"{PLACE}/heartbeat", params={"name": "math"}, json=body)
    assert (same.status_code, (await shown(run))["running_groups"]) == (200, 2)


async def test_a_stranger_must_join_first(run: httpx.AsyncClient) -> None:
    await join(run, "one")
    await run.post(ENVIRONMENTS, json={"name": "code", "member": "two"})
    for member in ("two", "nobody"):
        beat_ = await run.post(f"{PLACE}/heartbeat", json={"member": member})
        gone = await run.delete(PLACE, params={"member": member})
        for refused in (beat_, gone):
            assert (refused.status_code, refused.json()["code"]) == (404, "member_not_found")
            assert f"has no member {member}" in refused.json()["detail"]
    assert [one["members"] for one in (await run.get(ENVIRONMENTS)).json()["environments"]] == [1, 1]


@pytest.mark.parametrize("member", ["", "a\n", "a b", "x" * 129, ".", "é", "a:b", 3, ["a"]])
async def test_an_odd_id_of_a_member_is_refused(run: httpx.AsyncClient, member: object) -> None:
    await join(run, "one")
    replies = [
        await run.post(ENVIRONMENTS, json={"name": "math", "member": member}),
        await run.post(f"{PLACE}/heartbeat", json={"member": member}),
    ]
    if isinstance(member, str):
        replies += [
            await run.delete(PLACE, params={"member": member}),
            await run.get(f"{PLACE}/members", params={"after": member}),
        ]
    for refused in replies:
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["loc"][-1] in ("member", "after")
    assert (await shown(run))["members"] == 1


async def test_a_heartbeat_names_its_member(run: httpx.AsyncClient) -> None:
    await join(run, "one")
    refused = await run.post(f"{PLACE}/heartbeat", json={"running_groups": 1})
    assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, ["member"])


async def test_silent_members_expire_one_by_one(start: Start) -> None:
    client = await start(environment_ttl_s=3)
    await make_run(client)
    for member in ("silent", "heard"):
        await join(client, member, min_share=0.5)
    await beat(client, "silent", running_groups=2)

    async def one_is_left() -> bool:
        await beat(client, "heard")
        return (await shown(client))["members"] == 1

    await wait_until(one_is_left)
    environment = await shown(client)
    assert (environment["alive"], environment["running_groups"], environment["needs_sequences"]) == (True, 0, 4)
    assert (await client.post(f"{PLACE}/heartbeat", json={"member": "silent"})).status_code == 404

    async def nobody_is_left() -> bool:
        return not (await shown(client))["alive"]

    await wait_until(nobody_is_left)
    assert (await shown(client))["members"] == 0


@pytest.mark.parametrize(("members", "each", "together"), [(20, 20, []), (21, 0, [21])])
async def test_many_members_that_expire_at_once_are_one_event(
    run: httpx.AsyncClient,
    redis_client: Redis,
    log_lines: LogLines,
    members: int,
    each: int,
    together: list[int],
) -> None:
    await asyncio.gather(*(join(run, f"m{number}") for number in range(members)))
    await redis_client.hincrby(RunKeys("r").run, "clock_ms", 600_000)  # type: ignore[misc]

    async def nobody_is_left() -> bool:
        return (await shown(run))["members"] == 0

    async def they_are_named() -> bool:
        return bool(log_lines.of("member expired") or log_lines.of("members expired"))

    await wait_until(nobody_is_left)
    await wait_until(they_are_named)
    assert len(log_lines.of("member expired")) == each
    assert [line["members"] for line in log_lines.of("members expired")] == together


async def test_an_environment_is_alive_while_its_groups_arrive(run: httpx.AsyncClient, redis_client: Redis) -> None:
    """Who submits may be another process than those that joined, and have left."""
    await join(run, "one", min_share=0.5)
    await submit(run, "before")
    await leave(run, "one")
    assert not (await shown(run))["alive"], "a group from before it left is no sign of life"
    left_ms = await milliseconds(redis_client)

    async def another_millisecond() -> bool:  # the run clock counts these
        return await milliseconds(redis_client) > left_ms

    await wait_until(another_millisecond)
    await submit(run, "after")
    environment = await shown(run)
    assert (environment["alive"], environment["connected"], environment["members"]) == (True, True, 0)


async def test_an_operator_lets_all_members_leave(run: httpx.AsyncClient) -> None:
    for member in ("one", "two"):
        await join(run, member)
    assert (await run.delete(PLACE)).status_code == 204
    environment = await shown(run)
    assert (environment["members"], environment["connected"]) == (0, False)
    assert (await run.delete(PLACE)).status_code == 204, "however often"


async def test_what_members_say_they_run_never_adds_up_to_too_much(run: httpx.AsyncClient) -> None:
    """The sum of all members that a run takes is a number that Redis counts with."""
    await join(run, "one")
    for field in ("running_groups", "start_groups"):
        refused = await run.post(f"{PLACE}/heartbeat", json={"member": "one", field: MOST_RUNNING + 1})
        assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, [field])
        await beat(run, "one", **{field: MOST_RUNNING})
    assert (await shown(run))["running_groups"] == MOST_RUNNING
    assert MOST_RUNNING * MOST_MEMBERS * MAX_BATCH_SIZE < 2**63


async def test_workers_and_clients_of_atropos_have_environments_of_their_own(client: httpx.AsyncClient) -> None:
    """Names do not mix them up: neither takes the place of the other."""
    await register(client, 8)
    await batch(client)
    place = "/v1/runs/default/environments"
    await client.post(place, json={"name": "math", "member": "one"})
    assert (await client.delete(f"{place}/0")).status_code == 204
    registered = await register_env(client, "math", 4)
    assert (registered["env_id"], registered["wandb_name"]) == (1, "math_0")
    refused = await client.post(place, json={"name": "math_0", "member": "one"})
    assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, ["name"])
    assert "client of Atropos" in refused.json()["detail"]
    again = await client.post(place, json={"name": "math", "member": "one", "group_size": 8})
    assert (again.status_code, again.json()["id"]) == (200, 0)
    await client.post("/disconnect-env", json={"env_id": 0})
    assert [(env["connected"], env["members"]) for env in (await client.get(place)).json()["environments"]] == [
        (True, 1),
        (True, 0),
    ]


@pytest.mark.parametrize(("members", "each", "together"), [(20, 20, []), (21, 0, [21])])
async def test_many_members_that_leave_at_once_are_one_event(
    run: httpx.AsyncClient, log_lines: LogLines, members: int, each: int, together: list[int]
) -> None:
    """Others would push everything else out of the events of the run."""
    await asyncio.gather(*(join(run, f"m{number}") for number in range(members)))
    assert (await run.delete(PLACE)).status_code == 204
    assert len(log_lines.of("member left")) == each
    assert [line["members"] for line in log_lines.of("members left")] == together


@pytest.mark.parametrize("path", [ENVIRONMENTS, f"{PLACE}/heartbeat", "/runs/r/atropos/register-env"])
async def test_a_small_gzip_body_of_very_many_values_is_refused_unparsed(run: httpx.AsyncClient, path: str) -> None:
    """A body of 1 kB took a second. Other requests waited for it."""
    body = gzip.compress(b'{"x": [%s{}]}' % (b"{}," * 100_000))
    reply = await run.post(path, content=body, headers={"Content-Encoding": "gzip"})
    assert (reply.status_code, reply.json()["code"]) == (413, "body_too_large")
