"""The policy moves on while groups wait: what is too old is never trained on, and never vanishes unseen."""

import httpx

from tests.scenarios.native_calls import (
    RUN,
    change_run,
    end,
    group,
    ids,
    lease_runs_out,
    leased_batches,
    make_run,
    set_version,
    status,
    submit,
    take,
    taken,
    trained,
)


async def test_no_batch_has_a_stale_group(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2, max_staleness=2)
    for version in range(8):
        assert await set_version(client, version) == (1 if version >= 3 else 0), "the oldest leaves the queue"
        await submit(client, group(f"v{version}", policy_version=version))
    batches = [await trained(client) for _ in range(3)]
    assert [ids(batch) for batch in batches] == [["v5"], ["v6"], ["v7"]]
    assert [batch["groups"][0]["staleness"] for batch in batches] == [2, 1, 0]
    now = await status(client)
    assert (now["dropped"], now["groups"]["delivered"], now["groups"]["accepted"]) == ({"stale": 5}, 3, 8)
    lost = (await client.get(f"{RUN}/groups/v0")).json()
    assert (lost["state"], lost["reason"]) == ("dropped", "stale")


async def test_a_group_that_comes_too_late_is_refused_and_counted(client: httpx.AsyncClient) -> None:
    """Its environment did nothing wrong: it is no error, and sending it again changes nothing."""
    await make_run(client, max_staleness=0)
    await set_version(client, 4)
    fresh = group("fresh", policy_version=4)
    for _ in range(2):
        assert await submit(client, group("late", policy_version=3), fresh, "says-none") == [
            "stale",
            "accepted",
            "accepted",
        ]
    assert (await status(client))["dropped"] == {"stale": 1}
    assert ids(await taken(client)) == ["fresh", "says-none"], "who names no version has no staleness"


async def test_the_oldest_token_of_a_group_is_how_old_it_is(client: httpx.AsyncClient) -> None:
    """As when weights were updated while it was generated."""
    await make_run(client, batch_size=2, max_staleness=1)
    await set_version(client, 5)
    for oldest, outcome in ((4, "accepted"), (3, "stale")):
        versions = [[5, 5], [5, oldest]]
        assert await submit(client, group(f"since{oldest}", policy_versions=versions)) == [outcome]
    assert (await taken(client))["groups"][0]["policy_version"] == 4


async def test_a_batch_given_back_too_late_is_not_trained_on_again(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2, max_staleness=0)
    await submit(client, group("v0", policy_version=0))
    batch = await taken(client)
    assert await set_version(client, 1) == 0, "what a trainer holds is its own"
    assert (await end(client, batch, "nack")).status_code == 200
    assert await take(client) is None
    assert (await status(client))["dropped"] == {"stale": 1}


async def test_after_a_lower_version_newer_groups_count_as_current(
    client: httpx.AsyncClient,
) -> None:
    """A trainer that went back to a checkpoint counts its updates again. Groups sampled since are still valid."""
    await make_run(client, batch_size=2, max_staleness=1)
    await set_version(client, 7)
    await submit(client, group("v7", policy_version=7))
    assert await set_version(client, 5) == 0
    assert await submit(client, group("v8", policy_version=8)) == ["accepted"]
    assert await set_version(client, 6) == 0
    batches = [await trained(client) for _ in range(2)]
    assert [(ids(batch), batch["groups"][0]["staleness"]) for batch in batches] == [(["v7"], 1), (["v8"], 1)]


async def test_or_they_are_refused_where_the_run_says_so(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2, future_versions="refuse")
    await set_version(client, 7)
    assert await submit(client, group("v7", policy_version=7), group("v5", policy_version=5)) == ["accepted"] * 2
    assert await set_version(client, 5) == 1
    assert await submit(client, group("v6", policy_version=6)) == ["refused"]
    assert ids(await trained(client)) == ["v5"]
    assert (await status(client))["dropped"] == {"future_version": 2}
    await change_run(client, future_versions="restamp")
    assert await submit(client, group("v6", policy_version=6)) == ["refused"], "a repetition gets its first answer"
    assert await submit(client, group("another", policy_version=6)) == ["accepted"]


async def promised(client: httpx.AsyncClient, **instead: int) -> bool:
    """What explain and the status say of the next batch; they must agree."""
    said = (await client.get(f"{RUN}/batches/explain", params=instead)).json()["ready"]
    assert instead or said == (await status(client))["ready"]
    return bool(said)


async def test_a_stale_batch_that_is_returned_is_not_promised(
    client: httpx.AsyncClient,
) -> None:
    await make_run(client, batch_size=2, max_staleness=0)
    await submit(client, group("v0", policy_version=0))
    batch = await taken(client)
    await set_version(client, 1)
    assert (await end(client, batch, "nack")).status_code == 200
    assert (await status(client))["groups"]["queued"] == 0, "what nobody may train on does not wait"
    assert not await promised(client)
    assert await take(client) is None
    assert (await status(client))["dropped"] == {"stale": 1}


async def test_a_batch_of_another_size_that_waits_is_not_promised(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, "a")
    batch = await taken(client, lease_s=0.001)
    await change_run(client, batch_size=4)
    await lease_runs_out(client, batch)
    assert not await promised(client)
    assert [one["batch"] for one in await leased_batches(client)] == [batch["batch"]], "who asks changes nothing"
    assert await take(client) is None
    await submit(client, "b")
    assert await promised(client)
    assert ids(await taken(client)) == ["a", "b"]


async def test_an_archived_run_promises_nothing(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, "a")
    assert await promised(client)
    await change_run(client, archived=True)
    assert not await promised(client)
    assert (await status(client))["blocked"]["reason"] == "archived"
