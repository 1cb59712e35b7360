"""The status shows the environments of a run page by page; its totals count those of all pages."""

from typing import Any

import httpx
import pytest


async def make_run(client: httpx.AsyncClient, environments: int) -> None:
    await client.post("/v1/runs", json={"name": "r", "batch_size": 8})
    for number in range(environments):
        body = {"name": f"env{number}", "member": "one", "group_size": 1 + number % 3}
        assert (await client.post("/v1/runs/r/environments", json=body)).status_code == 201
    group = {"tokens": [[1]], "masks": [[1]], "scores": [0.5]}
    for number in range(environments):
        for copy in range(1 + number % 2):
            sent = group | {"id": f"{number}-{copy}", "environment": number}
            assert (await client.post("/v1/runs/r/groups", json=sent)).status_code < 300


@pytest.mark.parametrize("path", ["/v1/runs/r/status", "/runs/r/atropos/status"])
async def test_pages_together_show_each_environment_once_as_the_list_does(client: httpx.AsyncClient, path: str) -> None:
    await make_run(client, 7)
    await client.delete("/v1/runs/r/environments/2", params={"member": "one"})
    listed = (await client.get("/v1/runs/r/environments")).json()["environments"]
    shown: list[dict[str, Any]] = []
    after: int | None = -1
    while after is not None:
        page = (await client.get(path, params={"limit": 3, "after": after})).json()
        assert (page["registered_environments"], page["alive_environments"]) == (7, 6)
        assert len(page["environments"]) <= 3
        shown, after = shown + page["environments"], page["next_after"]
    assert [one["id"] for one in shown] == list(range(7))
    assert [_lasting(one) for one in shown] == [_lasting(one) for one in listed]
    assert [one["queued_groups"] for one in shown] == [1 + number % 2 for number in range(7)]
    whole = (await client.get(path)).json()
    assert ([_lasting(one) for one in whole["environments"]], whole["next_after"]) == (
        [_lasting(o) for o in shown],
        None,
    )


def _lasting(environment: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in environment.items() if name != "last_seen_age_s"}


async def test_a_page_has_a_size_and_a_run(client: httpx.AsyncClient) -> None:
    for limit in (0, 1001):
        assert (await client.get("/status", params={"limit": limit})).status_code == 422
    assert (await client.get("/v1/runs/r/status")).status_code == 404
