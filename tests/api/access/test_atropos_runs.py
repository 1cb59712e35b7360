"""What a trainer may do to the run that it registers with."""

import httpx
import pytest

from tests.api.access.conftest import Tokens, bearer
from tests.api.atropos_calls import registration
from tests.api.conftest import Start
from tests.scenarios.native_calls import group

RUN = {"name": "math-1", "batch_size": 4}
ATROPOS = "/runs/math-2/atropos"
ARCHIVED = "/v1/runs/math-2"


async def test_a_trainer_replaces_settings_of_atropos_runs_alone(start: Start, tokens: Tokens) -> None:
    operator, trainer = bearer(await tokens.make("operator")), bearer(await tokens.make("trainer", "math-*"))
    client = await start()
    made = (await client.post("/v1/runs", json=RUN, headers=trainer)).json()
    refused = await client.post("/runs/math-1/atropos/register", json=registration(1, starting_step=9), headers=trainer)
    assert (refused.status_code, refused.json()["code"]) == (409, "not_an_atropos_run")
    status = (await client.get("/v1/runs/math-1", headers=trainer)).json()
    assert (status["batch_size"], status["step"]) == (made["batch_size"], made["step"])
    for path, sender in (
        ("/runs/math-1/atropos/register", operator),
        ("/runs/math-1/atropos/register", trainer),  # the same again
        ("/runs/math-2/atropos/register", trainer),
        ("/runs/math-2/atropos/register", trainer),
    ):
        assert (await client.post(path, json=registration(1), headers=sender)).status_code == 200
    assert (await client.post("/runs/math-2/atropos/register", json=registration(2), headers=trainer)).is_success


async def archived_run(client: httpx.AsyncClient) -> None:
    """Make an archived run of Atropos with a group."""
    assert (await client.post(f"{ATROPOS}/register", json=registration(1))).status_code == 200
    assert (await client.post(f"{ARCHIVED}/groups", json=group("g"))).status_code == 201
    assert (await client.patch(ARCHIVED, json={"archived": True})).status_code == 200


@pytest.mark.parametrize("batch_size", [1, 2])
async def test_a_trainer_neither_registers_with_an_archived_run_nor_resets_it(
    start: Start, tokens: Tokens, batch_size: int
) -> None:
    trainer = bearer(await tokens.make("trainer", "math-*"))
    client = await start()
    client.headers.update(bearer(await tokens.make("operator")))
    await archived_run(client)
    before = (await client.get(ARCHIVED)).json()
    for refused in (
        await client.post(f"{ATROPOS}/register", json=registration(batch_size), headers=trainer),
        await client.get(f"{ATROPOS}/reset_data", headers=trainer),
    ):
        assert (refused.status_code, refused.json()["code"]) == (409, "run_archived")
    assert (await client.get(ARCHIVED)).json() == before
    assert (await client.patch(ARCHIVED, json={"archived": False})).status_code == 200
    assert (await client.post(f"{ATROPOS}/register", json=registration(2), headers=trainer)).status_code == 200
    assert (await client.get(f"{ATROPOS}/reset_data", headers=trainer)).status_code == 200


@pytest.mark.parametrize("role", ["operator", None])
async def test_an_operator_and_anyone_of_an_open_service_resets_an_archived_run(
    start: Start, tokens: Tokens, role: str | None
) -> None:
    client = await start()
    if role is not None:
        client.headers.update(bearer(await tokens.make(role)))
    await archived_run(client)
    assert (await client.post(f"{ATROPOS}/register", json=registration(2))).status_code == 200
    changed = (await client.get(ARCHIVED)).json()
    assert (changed["batch_size"], changed["archived"]) == (2, True)
    assert (await client.get(f"{ATROPOS}/reset_data")).status_code == 200
    assert (await client.get(ARCHIVED)).status_code == 404
