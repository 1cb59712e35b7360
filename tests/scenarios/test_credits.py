"""Credits cause neither a deadlock nor stale groups. Each case once stopped a run."""

from typing import Any

import httpx
import pytest

from tests.scenarios.native_calls import (
    RUN,
    end,
    group,
    lease_runs_out,
    make_run,
    set_version,
    submit,
    take,
    taken,
    trained,
)


async def join(client: httpx.AsyncClient, name: str, group_size: int = 2, **settings: Any) -> int:
    reply = await client.post(
        f"{RUN}/environments", json={"name": name, "member": "one", "group_size": group_size, **settings}
    )
    assert reply.status_code in (200, 201), reply.text
    return int(reply.json()["id"])


async def credits_of(client: httpx.AsyncClient, environment: int = 0) -> dict[str, Any]:
    reply = await client.get(f"{RUN}/environments/{environment}/credits")
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def groups_for(client: httpx.AsyncClient, environment: int = 0) -> int:
    return int((await credits_of(client, environment))["credits_groups"])


async def explained(client: httpx.AsyncClient) -> dict[str, Any]:
    reply = await client.get(f"{RUN}/batches/explain")
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def test_a_group_larger_than_a_batch_takes_no_credits(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4, max_staleness=0)
    await join(client, "math")
    await submit(client, group("large", 9, environment=0), group("a", environment=0))
    assert await groups_for(client) == 1


async def test_who_sends_groups_that_fit_no_batch_takes_no_part_of_a_batch_away(client: httpx.AsyncClient) -> None:
    """It declares groups that fit. Each of two environments was to make a half, and one never did."""
    await make_run(client, batch_size=4, max_staleness=0)
    await join(client, "large")
    await join(client, "math")
    assert [await groups_for(client, n) for n in (0, 1)] == [1, 1]
    await submit(client, group("a", 9, environment=0))
    answer = await credits_of(client, 0)
    assert answer["credits_groups"] == 0
    assert "its last group has 9 sequences, and it may have at most 4 of a batch" in answer["reason"]
    assert await groups_for(client, 1) == 2
    await submit(client, group("b", environment=0))
    assert [await groups_for(client, n) for n in (0, 1)] == [0, 1], "its groups fit again"


async def test_the_group_that_explain_names_gets_credits(
    client: httpx.AsyncClient,
) -> None:
    await make_run(client, batch_size=8, max_staleness=0)
    await join(client, "math", 8)
    await submit(client, group("a", 7, environment=0), group("b", 7, environment=0))
    assert (await explained(client))["unblocked_by"] == [[0, 8]]
    assert (await credits_of(client))["credits_sequences"] == 8
    assert await groups_for(client) == 1
    beat = {"member": "one", "running_groups": 1}
    assert (await client.post(f"{RUN}/environments/0/heartbeat", json=beat)).json()["credits_groups"] == 0
    await submit(client, group("c", 8, environment=0))
    assert (await taken(client))["batch_size"] == 8


async def test_groups_needed_together_are_granted_together(client: httpx.AsyncClient) -> None:
    """No single group completes a batch, so `unblocked_by` is empty."""
    await make_run(client, batch_size=8, max_staleness=0)
    await join(client, "math", 2)
    await submit(client, group("a", 7, environment=0), group("b", 7, environment=0))
    why = await explained(client)
    assert why["unblocked_by"] == []
    assert "environment 0 (math)" in why["detail"]
    assert await groups_for(client) == 4
    await submit(client, *(group(f"c{n}", 2, environment=0) for n in range(4)))
    assert (await taken(client))["batch_size"] == 8


async def test_a_quarantined_batch_takes_no_credits(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4, max_staleness=0, max_deliveries=1)
    await join(client, "math")
    await submit(client, group("a", environment=0), group("b", environment=0))
    batch = await taken(client, lease_s=0.05)
    assert await groups_for(client) == 0
    await lease_runs_out(client, batch)
    assert await take(client) is None
    assert await groups_for(client) == 2


async def test_a_trainer_may_collect_batches_while_its_replay_buffer_is_empty(client: httpx.AsyncClient) -> None:
    """All of the first batches is fresh. Groups enter the buffer when they are acknowledged."""
    await make_run(client, batch_size=8, max_staleness=1, fresh_fraction=0.5)
    assert (await client.put(f"{RUN}/replay", json={"groups": True})).status_code == 200
    await join(client, "math", 4)
    for batch in range(2):
        for round_ in range(5):  # a worker that follows its credits, and a trainer that asks
            for number in range(await groups_for(client)):
                name = f"{batch}-{round_}-{number}"
                await submit(client, group(name, 4, environment=0, policy_version=0))
            if await take(client) is not None:
                break
        else:
            pytest.fail(f"there is no batch {batch}: {(await credits_of(client))['reason']}")


async def test_a_batch_that_a_trainer_keeps_takes_no_minimum_of_the_next_one_away(client: httpx.AsyncClient) -> None:
    """The first batch has all groups of an environment, and the next one needs its minimum before the first ends."""
    await make_run(client, batch_size=8, max_staleness=1)
    promised, other = await join(client, "promised", 4, min_share=0.25), await join(client, "other", 1)
    made = [group(name, 4, environment=promised, policy_version=0) for name in "ab"]
    await submit(client, *made, *(group(f"{n}", 1, environment=other, policy_version=0) for n in range(8)))
    first = await taken(client)
    assert [one["environment"] for one in first["groups"]] == [promised] * 2
    assert await take(client) is None
    assert (await groups_for(client, promised), await groups_for(client, other)) == (1, 0)
    await submit(client, group("c", 4, environment=promised, policy_version=0))
    await taken(client)
    assert (await groups_for(client, promised), await groups_for(client, other)) == (0, 0), "it holds two"


async def test_an_environment_above_max_share_leaves_credits_to_others(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=8, max_staleness=0)
    await join(client, "much", 4, max_share=0.5)
    await join(client, "little", 4)
    await submit(client, *(group(f"m{n}", 4, environment=0) for n in range(3)))
    assert [await groups_for(client, n) for n in (0, 1)] == [0, 1]
    await submit(client, group("l", 4, environment=1))
    assert (await taken(client))["batch_size"] == 8


async def test_groups_without_an_owner_take_no_more_than_can_be_used(client: httpx.AsyncClient) -> None:
    """Environment 0 must have half of a batch, so that a group of 7 fits none."""
    await make_run(client, batch_size=8, max_staleness=0)
    await join(client, "math", 4, min_share=0.5)
    await join(client, "code", 4)
    await submit(client, *(group(f"u{n}", 7) for n in range(5)))
    assert [await groups_for(client, n) for n in (0, 1)] == [1, 1]
    await submit(client, group("m", 4, environment=0), group("c", 4, environment=1))
    assert (await taken(client))["batch_size"] == 8


async def test_an_environment_whose_groups_fit_no_batch_gets_no_credits(
    client: httpx.AsyncClient,
) -> None:
    await make_run(client, batch_size=4, max_staleness=0)
    await join(client, "large", 5)
    await join(client, "small", 2)
    refused = await credits_of(client, 0)
    assert (refused["credits_groups"], "5" in refused["reason"], "4" in refused["reason"]) == (0, True, True)
    assert await groups_for(client, 1) == 2


async def test_trained_groups_count_until_their_version_is_set(client: httpx.AsyncClient) -> None:
    """Groups made between an acknowledgement and the next version would all be too old."""
    await make_run(client, batch_size=4, max_staleness=0)
    await join(client, "math")
    for version in range(3):
        assert await groups_for(client) == 2
        made = [group(f"{version}{n}", environment=0, policy_version=version) for n in range(2)]
        assert await submit(client, *made) == ["accepted"] * 2
        assert await groups_for(client) == 0
        await trained(client)
        waiting = await credits_of(client)
        assert waiting["credits_groups"] == 0
        assert "policy version" in waiting["reason"]
        assert "PUT" in (await explained(client))["detail"]
        assert await set_version(client, version + 1) == 0


async def test_a_version_set_before_the_ack_is_for_that_batch(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4, max_staleness=0)
    await join(client, "math")
    for version in range(3):
        await submit(client, *(group(f"{version}{n}", environment=0, policy_version=version) for n in range(2)))
        batch = await taken(client)
        assert await groups_for(client) == 0
        await set_version(client, version + 1)
        assert await groups_for(client) == 2
        await end(client, batch)
        assert await groups_for(client) == 2


@pytest.mark.parametrize(("staleness", "version"), [(None, 0), (0, None)])
async def test_where_nothing_grows_too_old_credits_wait_for_no_version(
    client: httpx.AsyncClient, staleness: int | None, version: int | None
) -> None:
    """Runs without a limit, and groups that name no version, as those of Atropos."""
    await make_run(client, batch_size=4, max_staleness=staleness)
    await join(client, "math")
    for batch in range(6):
        named = {} if version is None else {"policy_version": version}
        await submit(client, *(group(f"{batch}{n}", environment=0, **named) for n in range(2)))
        await trained(client)
        assert await groups_for(client) >= 2


async def test_several_batches_may_make_one_version(client: httpx.AsyncClient) -> None:
    """After three batches in one version, credits cover three batches."""
    await make_run(client, batch_size=2, max_staleness=0)
    await join(client, "math")
    for step in range(3):
        await submit(client, group(f"a{step}", environment=0, policy_version=0))
        await trained(client)
    await set_version(client, 1)
    assert await groups_for(client) == 3
    await submit(client, group("b", environment=0, policy_version=1))
    await trained(client)
    assert await groups_for(client) == 2


async def test_several_versions_may_be_made_of_each_batch(client: httpx.AsyncClient) -> None:
    """Workers start no more than their credits, and nothing is dropped once the service knows the trainer."""
    await make_run(client, batch_size=4, max_staleness=4)
    await join(client, "math", 4)
    dropped = []
    for version in range(0, 40, 4):
        for number in range(await groups_for(client)):
            await submit(client, group(f"{version}-{number}", 4, environment=0, policy_version=version))
        await trained(client)
        dropped.append(await set_version(client, version + 4))
    assert sum(dropped[2:]) == 0
    assert (await credits_of(client))["horizon_batches"] == 2


@pytest.mark.parametrize("acknowledged_first", [True, False])
async def test_versions_of_a_batch_may_be_set_one_after_the_other(
    client: httpx.AsyncClient, acknowledged_first: bool
) -> None:
    await make_run(client, batch_size=4, max_staleness=8)
    await join(client, "math")
    version = 0
    for number in range(4):
        await submit(client, *(group(f"{number}{n}", policy_version=version, environment=0) for n in range(2)))
        batch = await taken(client)
        if acknowledged_first:
            await end(client, batch)
        for _ in range(4):
            version += 1
            await set_version(client, version)
        if not acknowledged_first:
            await end(client, batch)
    assert (await credits_of(client))["horizon_batches"] == 8 // 4 + 1


async def test_prefetched_batches_without_versions_leave_no_credits_behind(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4, max_staleness=4)
    await join(client, "math", 4)
    await submit(client, *(group(f"g{number}", 4, environment=0) for number in range(8)))
    held = [await taken(client) for _ in range(3)]
    for version in range(1, 5):
        await end(client, held.pop(0))
        await set_version(client, version)
        held.append(await taken(client))
        assert (await credits_of(client))["horizon_batches"] <= 6, "a version may be set before its batch is trained on"
    for batch in held:
        await end(client, batch)
    assert (await credits_of(client))["horizon_batches"] == 5


async def test_versions_set_by_hand_and_going_back_leave_nothing_behind(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2, max_staleness=0)
    await join(client, "math")
    await set_version(client, 40)
    assert await groups_for(client) == 1
    await submit(client, group("a", environment=0, policy_version=40))
    await trained(client)
    assert await groups_for(client) == 0
    await set_version(client, 40)
    assert await groups_for(client) == 0, "the same version again is none"
    reply = await client.post(f"{RUN}/rewind", json={"step": 0})
    assert reply.status_code == 200, reply.text
    assert await groups_for(client) == 0, "the batch is with the trainer again"
    await trained(client)
    assert await groups_for(client) == 0
    await set_version(client, 7)
    assert await groups_for(client) == 1
