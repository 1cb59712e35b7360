"""An environment submits groups that name their items; the curriculum learns from these groups alone."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.api.native_groups import BINARY, in_binary
from tests.scenarios.native_calls import RUN, group, make_run, status, submit

CURRICULUM = f"{RUN}/curricula/gsm8k"
OPEN, SOLVED = ([f"{kind}/{n}" for n in range(4)] for kind in ("open", "solved"))


async def begin(client: httpx.AsyncClient, **settings: Any) -> None:
    """Make a run with an environment and a curriculum of the same name."""
    await make_run(client, **settings)
    assert (await client.post(f"{RUN}/environments", json={"name": "gsm8k"})).status_code == 201
    assert (await client.put(CURRICULUM, json={"strategy": "learnability"})).status_code == 200
    await client.post(f"{CURRICULUM}/items", json={"items": [*OPEN, *SOLVED]})


async def drawn(client: httpx.AsyncClient) -> dict[str, float]:
    """Draw all items that are not in flight; their probabilities."""
    reply = await client.post(f"{CURRICULUM}/samples", json={"n": 8})
    assert reply.status_code == 200, reply.text
    return {item["key"]: item["probability"] for item in reply.json()["items"]}


async def test_a_curriculum_learns_from_dropped_groups_too(
    client: httpx.AsyncClient,
) -> None:
    await begin(client, filter_zero_variance={})
    for step in range(6):
        chances = await drawn(client)
        assert sorted(chances) == [*OPEN, *SOLVED], "what was scored is in flight no more"
        assert await drawn(client) == {}
        groups = [
            group(f"{item.replace('/', '')}-{step}", environment=0, item=item, scores=[1.0, float(item in SOLVED)])
            for item in chances
        ]
        expected = ["zero_variance" if group["item"] in SOLVED else "accepted" for group in groups]
        for _ in range(2):
            assert await submit(client, *groups) == expected
    chances = await drawn(client)
    assert min(chances[item] for item in OPEN) > 3 * max(chances[item] for item in SOLVED)
    shown = (await client.get(f"{CURRICULUM}/items/solved/0")).json()
    assert (shown["mean_reward"], shown["count"], shown["history"]) == (1.0, 6, [1.0] * 6)
    metrics = (await client.get(f"{CURRICULUM}/metrics")).json()["metrics"]
    assert (metrics["curriculum/total_updates"], metrics["curriculum/left_out"]) == (48, 0)
    assert [each["dropped"] for each in (await status(client))["environments"]] == [{"zero_variance": 24}]


@pytest.mark.parametrize("key", ["ключ 图/🙂", "\0", "x" * 512, '"\\'])
@pytest.mark.parametrize("binary", [False, True])
async def test_a_group_in_either_form_may_name_any_item(client: httpx.AsyncClient, key: str, *, binary: bool) -> None:
    await begin(client)
    told = group("g1", environment=0, item=key)
    body: dict[str, Any] = {"content": in_binary(told), "headers": BINARY} if binary else {"json": told}
    for _ in range(2):
        reply = await client.post(f"{RUN}/groups", **body)
        assert reply.json()["groups"] == [{"id": "g1", "status": "accepted"}]
    item = (await client.get(f"{CURRICULUM}/items/{quote(key, safe='')}")).json()
    assert (item["key"], item["count"], item["mean_reward"]) == (key, 1, 0.5)
