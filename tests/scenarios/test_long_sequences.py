"""A sequence above the limit of a run or of a micro-batch blocks nobody and is named."""

from typing import Any

import httpx
import pytest

from lachesis.wire import frame
from tests.api import atropos_calls
from tests.api.native_groups import BINARY, in_binary
from tests.scenarios.native_calls import (
    RUN,
    change_run,
    end,
    group,
    ids,
    lease_runs_out,
    make_run,
    status,
    submit,
    take,
    taken,
)

RANK = {"rank": 0, "world_size": 2, "micro_batch_tokens": 8}


def long_group(name: str, tokens: int = 9, at: int = 1, **keys: Any) -> dict[str, Any]:
    """A group of two sequences, one of which is long."""
    rows = [[7] * (tokens if position == at else 2) for position in range(2)]
    return group(name, **keys) | {"tokens": rows, "masks": rows}


async def sent(client: httpx.AsyncClient, *groups: dict[str, Any], binary: bool) -> httpx.Response:
    if not binary:
        return await client.post(f"{RUN}/groups", json={"groups": list(groups)})
    blobs = [in_binary(one) for one in groups]
    return await client.post(f"{RUN}/groups", content=bytes(frame.frame(blobs, "groups")), headers=BINARY)


@pytest.mark.parametrize("binary", [False, True])
async def test_a_group_with_a_long_sequence_is_refused(client: httpx.AsyncClient, binary: bool) -> None:
    await make_run(client, batch_size=2, max_sequence_tokens=8)
    reply = await sent(client, long_group("a", tokens=8), long_group("b"), binary=binary)
    problem = reply.json()
    assert (reply.status_code, problem["code"]) == (422, "sequence_too_long")
    assert problem["errors"][0]["loc"] == ["groups", 1, "tokens", 1]
    assert "group b" in problem["detail"]
    assert "9 tokens" in problem["detail"]
    assert (await status(client))["groups"]["accepted"] == 0
    assert (await sent(client, long_group("a", tokens=8), binary=binary)).status_code == 201


@pytest.mark.parametrize("binary", [False, True])
async def test_a_run_can_drop_groups_with_long_sequences(client: httpx.AsyncClient, binary: bool) -> None:
    await make_run(client, batch_size=2, max_sequence_tokens=8, long_sequences="drop")
    reply = await sent(client, long_group("a", at=0), group("b"), binary=binary)
    assert [one["status"] for one in reply.json()["groups"]] == ["too_long", "accepted"]
    assert ids(await taken(client)) == ["b"]
    now = await status(client)
    assert (now["groups"]["accepted"], now["dropped"]) == (2, {"too_long": 1})
    assert (await client.get(f"{RUN}/groups/a")).json()["reason"] == "too_long"


async def test_a_group_accepted_before_the_limit_stays_accepted(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, long_group("a"))
    await change_run(client, max_sequence_tokens=8)
    assert await submit(client, long_group("a"), group("b")) == ["accepted", "accepted"]
    reply = await client.post(f"{RUN}/groups", json={"groups": [long_group("a"), long_group("c")]})
    assert reply.json()["errors"][0]["loc"] == ["groups", 1, "tokens", 1]
    assert (await status(client))["groups"]["accepted"] == 2
    await change_run(client, max_sequence_tokens=None)
    assert await submit(client, long_group("c")) == ["accepted"]


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", 2**53])
async def test_a_limit_that_cannot_be_is_refused(client: httpx.AsyncClient, value: object) -> None:
    body = {"name": "run", "batch_size": 2, "max_sequence_tokens": value}
    assert (await client.post("/v1/runs", json=body)).status_code == 422


# Atropos


async def test_max_token_len_of_register_is_the_same_limit(client: httpx.AsyncClient) -> None:
    """A refusal would lose all groups of the request, and the environment logs only the status."""
    await atropos_calls.register(client, batch_size=2, max_token_len=8)
    good, bad = (atropos_calls.group(2, mark) for mark in (1, 2))
    bad["tokens"][0] = bad["masks"][0] = [7] * 9
    reply = await client.post("/scored_data_list", json=[good, bad])
    assert (reply.status_code, reply.json()) == (200, {"status": "received", "groups_processed": 2})
    assert (await client.post("/scored_data", json=bad)).json() == {"status": "received"}
    batch = await atropos_calls.batch(client)
    assert batch is not None
    assert atropos_calls.marks(batch) == [1]
    now = await atropos_calls.status(client)
    assert (now["dropped"], now["queue_size"]) == ({"too_long": 2}, 0)


@pytest.mark.parametrize("max_token_len", [-1, 0])
async def test_a_registration_without_a_limit_has_none(client: httpx.AsyncClient, max_token_len: int) -> None:
    await atropos_calls.register(client, batch_size=2, max_token_len=max_token_len)
    await atropos_calls.post(client, atropos_calls.group(2))
    assert (await client.get("/info")).json()["max_token_len"] == max_token_len
    assert await atropos_calls.batch(client) is not None


async def test_environments_of_atropos_receive_the_runs_limit(client: httpx.AsyncClient) -> None:
    """They leave out long sequences themselves."""
    await make_run(client, max_sequence_tokens=64)
    assert (await client.get("/runs/run/atropos/info")).json() == {"batch_size": 4, "max_token_len": 64}


# Micro-batches


async def asked(client: httpx.AsyncClient, **query: Any) -> httpx.Response:
    return await client.post(f"{RUN}/batches", params=RANK | query, json={})


async def explained(client: httpx.AsyncClient) -> dict[str, Any]:
    why: dict[str, Any] = (await client.get(f"{RUN}/batches/explain")).json()
    now = await status(client)
    assert why["ready"] == now["ready"]
    assert why["ready"] or now["blocked"]["reason"] == why["reason"]
    return why


async def test_explain_names_a_group_that_fits_no_micro_batch(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=4)
    await submit(client, "a", long_group("long"), "b")
    assert (await explained(client))["ready"] is True
    for _ in range(2):
        problem = (await asked(client)).json()
        assert (problem["status"], problem["code"]) == (422, "sequence_too_long")
        assert "sequence 1 of group long" in problem["detail"]
        assert "9 tokens" in problem["detail"]
    why = await explained(client)
    assert (why["ready"], why["reason"]) == (False, "cannot_be_divided")
    assert "group long" in why["detail"]
    assert (await client.delete(f"{RUN}/groups/long")).status_code == 204
    assert (await explained(client))["ready"] is True
    reply = await asked(client)
    assert reply.status_code == 201, reply.text


async def test_a_trainer_with_larger_micro_batches_gets_the_batch(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, long_group("long"), long_group("longer"))
    assert (await asked(client)).status_code == 422
    assert (await explained(client))["reason"] == "cannot_be_divided"
    assert [(await asked(client, rank=rank, micro_batch_tokens=9)).status_code for rank in (0, 1)] == [201, 201]
    assert (await explained(client))["ready"] is True, "nobody has asked for the next one with less"
    assert ids(await taken(client)) == ["longer"]


async def test_explain_names_a_batch_that_fits_no_micro_batch(
    client: httpx.AsyncClient,
) -> None:
    await make_run(client, batch_size=4)
    await submit(client, "a", long_group("long"))
    batch = await taken(client, lease_s=0.001)
    await submit(client, "b")
    await lease_runs_out(client, batch)
    problem = (await asked(client)).json()
    assert problem["code"] == "sequence_too_long"
    assert batch["batch"] in problem["detail"]
    why = await explained(client)
    assert (why["reason"], batch["batch"] in why["detail"]) == ("cannot_be_divided", True)
    assert (await client.delete(f"{RUN}/groups/long")).json()["code"] == "group_not_waiting"
    given_back = await client.post(f"{RUN}/batches/{batch['batch']}/nack", json={"lease": None})
    assert given_back.status_code == 200, given_back.text
    assert (await client.delete(f"{RUN}/groups/long")).status_code == 204
    assert (await asked(client)).status_code == 201


async def test_explain_names_a_replayed_group_that_fits_no_micro_batch(client: httpx.AsyncClient) -> None:
    """It said that a batch was ready, as it is for trainers without ranks. The ranks waited for fresh groups."""
    await make_run(client, batch_size=4)
    assert (await client.put(f"{RUN}/replay", json={"groups": True})).status_code == 200
    await change_run(client, fresh_fraction=0.5)
    await submit(client, long_group("long"), long_group("longer"))
    assert (await end(client, await taken(client))).status_code == 200
    await submit(client, "a")
    assert (await explained(client))["ready"] is True
    reply = await asked(client)
    assert reply.status_code == 204
    assert "is from the replay buffer" in reply.headers["Lachesis-Waiting"]
    why = await explained(client)
    assert (why["ready"], why["reason"]) == (False, "cannot_be_divided")
    assert "9 tokens" in why["detail"]
    await submit(client, "b")
    assert (await asked(client)).status_code == 201
    await submit(client, "c")
    assert (await explained(client))["ready"] is True


async def test_nobody_gives_back_what_a_trainer_holds_without_its_lease(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, "a")
    batch = await taken(client)
    reply = await client.post(f"{RUN}/batches/{batch['batch']}/nack", json={"lease": None})
    assert reply.json()["code"] == "lease_lost"
    assert (await end(client, batch)).status_code == 200
    assert await take(client) is None


async def test_a_sharding_error_is_forgotten_once_ranks_get_the_batch(client: httpx.AsyncClient) -> None:
    """A later trainer may take the batch again."""
    await make_run(client, batch_size=2)
    await submit(client, long_group("long"))
    await lease_runs_out(client, await taken(client, lease_s=0.001))
    assert (await asked(client)).status_code == 422
    assert (await explained(client))["reason"] == "cannot_be_divided"
    reply = await client.post(f"{RUN}/batches", params=RANK | {"micro_batch_tokens": 9}, json={"lease_s": 0.001})
    await lease_runs_out(client, reply.json())
    assert (await explained(client))["ready"] is True
