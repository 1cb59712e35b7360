"""`POST /v1/shards/plan`: the plan of what is sent, or of a dataset below one folder, and of nothing outside of it."""

import asyncio
import contextlib
import gzip
import json
import random
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.routes.datasets import MAX_INLINE_BYTES
from app.services.datasets import ShardPlanSpec, episodes_of, plan_episodes
from lachesis.wire.shards import ShardPlanInfo
from tests.api.conftest import Start
from tests.datasets.writers import lerobot_v2, lerobot_v3, write_lines
from tests.properties import examples

LENGTHS = [*range(10, 410, 10)]


async def plan(client: httpx.AsyncClient, **asked: Any) -> ShardPlanInfo:
    reply = await client.post("/v1/shards/plan", json={"ranks": 4} | asked)
    assert reply.status_code == 200, reply.text
    assert set(reply.json()) == set(ShardPlanInfo.model_fields)
    return ShardPlanInfo.model_validate(reply.json())


async def refused(client: httpx.AsyncClient, status: int, **asked: Any) -> dict[str, Any]:
    reply = await client.post("/v1/shards/plan", json={"ranks": 4} | asked)
    assert reply.status_code == status, reply.text
    problem: dict[str, Any] = reply.json()
    return problem


def ids(found: ShardPlanInfo) -> list[Any]:
    """The ids of all shards, sorted."""
    return sorted(name for shard in found.shards for name in shard.episodes or ())


async def test_lengths_are_numbered_and_each_is_in_one_shard(client: httpx.AsyncClient) -> None:
    found = await plan(client, lengths=LENGTHS)
    assert ids(found) == list(range(40))
    for shard in found.shards:
        assert shard.episodes is not None
        assert shard.length == shard.cost == sum(LENGTHS[int(n)] for n in shard.episodes)
        assert shard.load == pytest.approx(shard.cost / (sum(LENGTHS) / 4))
    assert found.contiguous.max_over_mean == pytest.approx(0.7317, abs=1e-4)
    assert found.speed_up == pytest.approx(found.contiguous_pass_time / found.pass_time)
    assert found.imbalance.max_over_mean >= found.bound.max_over_mean
    assert (found.lengths.episodes, found.lengths.total, found.dataset) == (40, sum(LENGTHS), None)


async def test_episodes_have_ids_and_costs_of_their_own(client: httpx.AsyncClient) -> None:
    episodes = [{"episode": f"e{n}", "length": 5, "cost": n} for n in range(8)]
    found = await plan(client, episodes=episodes, cost="declared", equal_episodes=True)
    assert ids(found) == sorted(f"e{n}" for n in range(8))
    assert [shard.cost for shard in found.shards] == [7] * 4
    assert [shard.count for shard in found.shards] == [2] * 4
    assert found.equal_episodes
    numbered = await plan(client, episodes=[{"length": 5}, {"length": 6}], list_episodes=True)
    assert ids(numbered) == [0, 1]


async def test_episodes_need_not_be_listed(client: httpx.AsyncClient) -> None:
    found = await plan(client, lengths=LENGTHS, list_episodes=False)
    assert [shard.episodes for shard in found.shards] == [None] * 4
    assert sum(shard.count for shard in found.shards) == 40


@pytest.mark.parametrize("write", [lerobot_v2, lerobot_v3])
async def test_a_dataset_on_disk_is_planned_with_its_facts(start: Start, tmp_path: Path, write: Any) -> None:
    write(tmp_path / "robots" / "d", LENGTHS)
    client = await start(datasets_dir=tmp_path)
    found = await plan(client, path="robots/d", cost="frames*action_dim*cameras")
    assert found.dataset is not None
    assert (found.dataset.fps, found.dataset.action_dim, len(found.dataset.cameras or ())) == (30, 7, 2)
    assert sum(shard.cost for shard in found.shards) == sum(LENGTHS) * 14
    assert ids(found) == list(range(40))


async def test_a_column_of_lengths_may_have_another_name(start: Start, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"n_tokens": n} for n in LENGTHS])
    client = await start(datasets_dir=tmp_path)
    assert (await plan(client, path="a.jsonl", length="n_tokens")).lengths.total == sum(LENGTHS)


async def test_without_a_folder_of_datasets_none_is_read(client: httpx.AsyncClient, tmp_path: Path) -> None:
    lerobot_v2(tmp_path, LENGTHS)
    problem = await refused(client, 404, path=str(tmp_path))
    assert problem["code"] == "dataset_not_found"
    assert "LACHESIS_DATASETS_DIR is not set" in problem["detail"]


@pytest.mark.parametrize("path", ["../outside", "{tmp}/outside", "link", "inside/../../outside", "nothing", "..", "\0"])
async def test_no_path_leads_out_of_the_folder(start: Start, tmp_path: Path, path: str) -> None:
    lerobot_v2(tmp_path / "root" / "inside", LENGTHS)
    lerobot_v2(tmp_path / "outside", LENGTHS)
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    client = await start(datasets_dir=tmp_path / "root")
    assert (await plan(client, path="inside")).lengths.episodes == 40
    problem = await refused(client, 404, path=path.format(tmp=tmp_path))
    assert problem["code"] == "dataset_not_found"


async def test_a_broken_dataset_is_named_but_not_where_it_lies(start: Start, tmp_path: Path) -> None:
    lerobot_v2(tmp_path / "d", LENGTHS)
    (tmp_path / "d/meta/episodes.jsonl").write_text('{"episode_index": 0, "length": -1, "tasks": []}\n')
    problem = await refused(await start(datasets_dir=tmp_path), 422, path="d")
    assert problem["code"] == "invalid_dataset"
    assert problem["detail"].startswith("d/meta/episodes.jsonl, line 1: length is -1")
    assert str(tmp_path) not in json.dumps(problem)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "send one of lengths, episodes and path, not none"),
        ({"lengths": [1], "path": "d"}, "not lengths and path"),
        ({"lengths": []}, "lengths"),
        ({"lengths": [1, -1]}, "lengths[1]"),
        ({"lengths": [1, 1.5]}, "lengths[1]"),
        ({"lengths": [True]}, "lengths[0]"),
        ({"lengths": [2**36 + 1]}, "lengths[0]"),
        ({"lengths": [1], "length": "n"}, "length:"),
        ({"lengths": [1], "ranks": 0}, "ranks"),
        ({"lengths": [1], "ranks": 100_001}, "ranks"),
        ({"lengths": [1], "ranks": "4"}, "ranks"),
        ({"lengths": [1], "rank": 4}, "rank"),
        ({"lengths": [1], "cost": "cubic"}, "cost: 'cubic' is not a cost"),
        ({"lengths": [1], "cost": "declared"}, "cost: declared: these episodes have no column 'cost'"),
        ({"lengths": [1], "cost": "frames*action_dim*cameras"}, "needs action_dims and cameras"),
        ({"lengths": [1], "cost": "quadratic=1e308,linear=1"}, None),
        ({"lengths": [2**36], "cost": "quadratic=1e308"}, "inf"),
        ({"episodes": [{"length": 1, "cost": 1}, {"length": 1}], "cost": "declared"}, "no column 'cost'"),
        ({"episodes": [{"length": 1, "cost": -1}]}, "episodes[0].cost"),
        ({"episodes": [{"length": 1, "episode": "a"}, {"length": 1}]}, "episodes[1].episode: ids must be all"),
        ({"episodes": [{"length": 1, "episode": 1}] * 2}, "episodes[1].episode: 1 is also the id of episodes[0]"),
        ({"episodes": [{"length": 1, "episode": 2**63}]}, "episodes[0].episode"),
        ({"path": ""}, "path"),
    ],
)
async def test_what_cannot_be_planned_is_said_with_its_place(
    client: httpx.AsyncClient, asked: dict[str, Any], said: str | None
) -> None:
    if said is None:
        assert (await plan(client, **asked)).lengths.episodes == 1
        return
    problem = await refused(client, 422, **asked)
    assert problem["code"] == "invalid_field"
    assert said in problem["detail"], problem


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[1, 2]", 422),
        (b'{"ranks": 2, "ranks": 3, "lengths": [1]}', 400),
        (b'{"ranks": 2, "lengths": [NaN]}', 422),
        (b'{"ranks": 2, "lengths": ' + b"[" * 100_000, 400),
    ],
    ids=["empty", "a list", "a key twice", "not a number", "nested"],
)
async def test_hostile_bodies_are_refused(client: httpx.AsyncClient, body: bytes, status: int) -> None:
    reply = await client.post("/v1/shards/plan", content=body)
    assert reply.status_code == status, reply.text


async def test_bodies_are_bounded_below_those_of_groups(client: httpx.AsyncClient) -> None:
    # It shrinks to a thirtieth: more would be a bomb, and be refused earlier. The window of gzip is half as long.
    piece = random.Random(0).randbytes(1 << 11) + b" " * (62 << 10)
    body = gzip.compress(piece * (MAX_INLINE_BYTES // len(piece) + 1), 1)
    reply = await client.post("/v1/shards/plan", content=body, headers={"Content-Encoding": "gzip"})
    assert reply.status_code == 413
    assert f"more than {MAX_INLINE_BYTES} bytes" in reply.json()["detail"]


@pytest.mark.slow
async def test_a_large_plan_does_not_hold_up_the_service(client: httpx.AsyncClient) -> None:
    """On the event loop it would: nobody would be answered between its beginning and its end."""
    lengths = np.random.default_rng(0).integers(1, 5000, 300_000).tolist()
    body = json.dumps({"ranks": 64, "lengths": lengths}).encode()
    planning = asyncio.create_task(client.post("/v1/shards/plan", content=body))
    answered = 0
    while not planning.done():
        with contextlib.suppress(httpx.ReadError):  # on a busy machine a connection can be idle for too long
            assert (await client.get("/healthz")).status_code == 200
            answered += 1
    assert planning.result().status_code == 200
    assert answered > 20


@given(
    st.lists(st.tuples(st.integers(0, 2**36), st.floats(0, 1e12)), min_size=1, max_size=40),
    st.integers(1, 9),
    st.booleans(),
)
@examples(50)
def test_the_description_of_shards_is_what_is_in_them(
    episodes: list[tuple[int, float]], ranks: int, texts: bool
) -> None:
    lengths, costs = (np.array(values) for values in zip(*episodes, strict=True))
    names = [f"e{n}" for n in range(len(lengths))]
    planned = plan_episodes(
        names if texts else np.arange(len(lengths)), lengths, costs, ShardPlanSpec(ranks, "declared")
    )
    seen = []
    for (named, of_lengths, of_costs), shard in zip(episodes_of(planned), planned.plan.shards, strict=True):
        where = [int(str(name).removeprefix("e")) for name in named]
        assert of_lengths.tolist() == [lengths[n] for n in where]
        assert of_costs.tolist() == [costs[n] for n in where]
        assert (shard.episodes, shard.length) == (len(named), of_lengths.sum())
        seen += named
    assert sorted(seen) == sorted(names if texts else range(len(lengths)))
