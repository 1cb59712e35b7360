"""Filters keep groups without a learning signal out of batches; an alert tells when nothing trainable is left."""

from typing import Any

import httpx
import pytest

from tests.api import atropos_calls as atropos
from tests.api.native_groups import BINARY, in_binary
from tests.api.test_metrics import scrape
from tests.scenarios.native_calls import RUN, change_run, group, ids, make_run, status, submit, take, taken, trained

ATROPOS = "/runs/run/atropos"


def solved(name: str, size: int = 2, **keys: Any) -> dict[str, Any]:
    """Make a group whose scores are all 1, except for the last digits."""
    return group(name, size, scores=[1.0 - n * 1e-8 for n in range(size)], **keys)


async def explained(client: httpx.AsyncClient) -> dict[str, Any]:
    reply = await client.get(f"{RUN}/batches/explain")
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def test_a_trainer_without_a_batch_hears_that_filters_drop_the_groups(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4, filter_zero_variance={})
    await submit(client, *(solved(f"e{number}") for number in range(3)))
    reply = await client.post(f"{RUN}/batches")
    assert reply.status_code == 204
    why = reply.headers["lachesis-waiting"]
    assert why.endswith("; filters dropped 3 of the last 3 groups (100 %): zero_variance 3")


async def test_a_trainer_hears_that_batches_wait_for_an_environment_that_filters_leave_nothing(
    client: httpx.AsyncClient,
) -> None:
    """It is alive and sends groups, so its minimum never ends."""
    await make_run(client, batch_size=4, filter_zero_variance={})
    for name, share in (("easy", 0.5), ("good", None)):
        await client.post(f"{RUN}/environments", json={"name": name, "group_size": 2, "min_share": share})
    await submit(client, *(solved(f"e{number}", environment=0) for number in range(3)))
    await submit(client, *(group(f"g{number}", 2, environment=1) for number in range(3)))
    told = (
        "environment 0 (easy) needs 2 of 4 sequences, has 0 queued; filters dropped 3 of the last 6 groups (50 %): "
        "zero_variance 3. Of these, 3 of environment 0 (easy): change filter_zero_variance or set relax_scarce_after_s"
    )
    assert (await client.post(f"{RUN}/batches")).headers["lachesis-waiting"] == f"minimum_short: {told}"
    assert (await explained(client))["detail"] == told
    assert (await status(client))["blocked"]["detail"] == told


async def test_a_filter_drops_groups_of_solved_prompts_and_batches_stay_exact(
    client: httpx.AsyncClient,
) -> None:
    await make_run(client, batch_size=4, filter_zero_variance={}, alert_after_batches=3)
    for name in ("easy", "good"):
        await client.post(f"{RUN}/environments", json={"name": name, "group_size": 2})
    for number in range(5):
        assert await submit(client, solved(f"e{number}", environment=0)) == ["zero_variance"]
    assert await submit(client, solved("e0", environment=0)) == ["zero_variance"], "and so each time it is sent"
    why = await explained(client)
    assert (why["reason"], why["alert"]) == ("too_few_sequences", None)
    assert "filters dropped 5 of the last 5 groups (100 %): zero_variance 5" in why["detail"]
    assert (why["arrived_groups"], why["filtered_groups"]) == (5, {"zero_variance": 5})
    assert (await scrape(client)).value("lachesis_starvation", run="run") == 0

    assert await submit(client, solved("e5", environment=0)) == ["zero_variance"]
    now = await status(client)
    alert = now["alert"]
    assert (alert["sequences"], alert["dropped"]) == (12, {"zero_variance": 6})
    assert alert["detail"] == "nothing to train on in the last 12 sequences; dropped groups: zero_variance 6"
    assert [environment["dropped"] for environment in now["environments"]] == [{"zero_variance": 6}, {}]
    assert (await explained(client))["alert"]["detail"] == alert["detail"]
    page = await scrape(client)
    assert page.value("lachesis_starvation", run="run") == 1
    assert page.value("lachesis_groups_dropped_total", run="run", reason="zero_variance") == 6

    outcomes = await submit(client, group("g0", environment=1), solved("e6", environment=0), group("g1", environment=1))
    assert outcomes == ["accepted", "zero_variance", "accepted"]
    assert (await status(client))["alert"] is None
    batch = await trained(client)
    assert (ids(batch), batch["batch_size"]) == (["g0", "g1"], 4)
    assert await take(client) is None
    now = await status(client)
    assert (now["groups"]["accepted"], now["groups"]["delivered"], now["dropped"]) == (9, 2, {"zero_variance": 7})


async def test_environments_of_atropos_notice_nothing(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4, filter_zero_variance={}, filter_pass_rate={"above": None, "below": 0.75})
    await take(client)
    registered = {"desired_name": "old", "group_size": 2, "max_token_length": 512, "weight": 1.0}
    old = (await client.post(f"{ATROPOS}/register-env", json=registered)).json()["env_id"]
    sent = [atropos.group(2, 1, old), atropos.group(2, 2, old, scores=[0.5, 0.5]), atropos.group(2, 3, old)]
    for one in sent:
        assert (await client.post(f"{ATROPOS}/scored_data", json=one)).json() == {"status": "received"}
    several = [atropos.group(3, 4, old, scores=[1, 1, 0.9]), atropos.group(2, 5, old)]
    reply = await client.post(f"{ATROPOS}/scored_data_list", json=several)
    assert reply.json() == {"status": "received", "groups_processed": 2}
    assert (await status(client))["dropped"] == {"zero_variance": 1, "pass_rate": 1}
    assert atropos.marks((await client.get(f"{ATROPOS}/batch")).json()["batch"]) == [1, 3]


@pytest.mark.parametrize("binary", [False, True])
async def test_what_a_filter_keeps_comes_with_the_weight_of_its_loss(client: httpx.AsyncClient, binary: bool) -> None:
    await make_run(client, batch_size=4, filter_reward_range={"below": 0.75, "loss_weight": 0.125})
    for one in (solved("easy"), group("mixed")):
        body = {"content": in_binary(one), "headers": BINARY} if binary else {"json": one}
        reply = await client.post(f"{RUN}/groups", **body)
        assert reply.json() == {"groups": [{"id": one["id"], "status": "accepted"}]}
    found = (await client.get(f"{RUN}/groups/easy")).json()
    assert (found["state"], found["filtered_by"]) == ("queued", "reward_range")
    batch = await taken(client)
    assert [(one.get("filtered_by"), one.get("loss_weight")) for one in batch["groups"]] == [
        ("reward_range", 0.125),
        (None, None),
    ]
    assert (await status(client))["dropped"] == {}


@pytest.mark.parametrize(
    ("settings", "where", "why"),
    [
        ({"filter_zero_variance": {"epsilon": -1}}, ["filter_zero_variance", "epsilon"], "greater than or equal to 0"),
        ({"filter_zero_variance": {"eps": 0}}, ["filter_zero_variance", "eps"], "unknown here"),
        ({"filter_zero_variance": True}, ["filter_zero_variance"], "object, with the fields of ZeroVarianceFilter"),
        ({"filter_reward_range": {}}, ["filter_reward_range"], "needs a bound"),
        ({"filter_reward_range": {"above": 1, "below": 1}}, ["filter_reward_range"], "nothing is above 1 and below 1"),
        ({"filter_pass_rate": {"above": 1.5}}, ["filter_pass_rate", "above"], "less than or equal to 1"),
        ({"filter_pass_rate": {"above": 1.0}}, ["filter_pass_rate"], "nothing is above 1 and below 1"),
        ({"filter_pass_rate": {"loss_weight": 2}}, ["filter_pass_rate", "loss_weight"], "less than or equal to 1"),
        ({"alert_after_batches": 0}, ["alert_after_batches"], "greater than or equal to 1"),
    ],
)
async def test_a_filter_that_cannot_be_is_refused_with_its_place(
    client: httpx.AsyncClient, settings: dict[str, Any], where: list[str], why: str
) -> None:
    await make_run(client, filter_pass_rate={"below": 0.5})
    before = (await client.get(RUN)).json()
    refused = await client.patch(RUN, json=settings)
    assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, where)
    assert why in refused.json()["detail"]
    assert (await client.get(RUN)).json() == before


async def test_a_filter_is_set_as_a_whole_and_changed_while_groups_come(client: httpx.AsyncClient) -> None:
    await make_run(client, filter_pass_rate={"above": 0.25, "below": 0.5})
    assert await submit(client, group("half")) == ["pass_rate"]
    await change_run(client, filter_pass_rate={"threshold": 1.0})
    now = (await client.get(RUN)).json()
    assert now["filter_pass_rate"] == {"threshold": 1.0, "above": 0.0, "below": 1.0, "loss_weight": None}
    assert (now["filter_zero_variance"], now["alert_after_batches"]) == (None, 10)
    assert await submit(client, "half", group("other"), solved("all")) == ["pass_rate", "accepted", "pass_rate"]
    await change_run(client, filter_pass_rate=None)
    assert await submit(client, solved("late")) == ["accepted"]
