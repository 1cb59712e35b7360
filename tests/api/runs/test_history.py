"""Charts of a run over HTTP. Replies are compared with the document by every test (`running_service`)."""

import httpx
import pytest
from redis.asyncio import Redis

from app.core.history.series import Facts, HistorySpan
from app.core.history.sketch import Sketch
from app.store.history.store import HistoryStore
from app.store.redis.client import RedisClient
from lachesis.wire.history import History, HistoryHistograms, HistoryShares
from tests.api.atropos_calls import registration
from tests.api.conftest import Start
from tests.scenarios.native_calls import RUN, make_run

HISTORY = f"{RUN}/history"


@pytest.fixture
async def client(start: Start) -> httpx.AsyncClient:
    started = await start()
    await make_run(started)
    return started


async def write(redis_url: str, **environments: Facts) -> None:
    connection = RedisClient(redis_url, 5.0)
    assert await HistoryStore(connection).append("run", HistorySpan(Facts({"batches": 2}), environments))
    await connection.aclose()


async def test_a_run_without_a_history_has_nulls(client: httpx.AsyncClient) -> None:
    """The range ends before the run was made: the service may have written a history of it already."""
    to_s = History.model_validate((await client.get(HISTORY)).json()).to_s - 1800
    past = f"from={to_s - 120}&to={to_s}"
    found = History.model_validate((await client.get(f"{HISTORY}?{past}")).json())
    assert (found.step_s, len(found.times_s), found.environments) == (10, len(found.run.step), {})
    assert set(found.run.batches) == {None}
    of_length = await client.get(f"{HISTORY}/histograms?value=length&{past}")
    none = HistoryHistograms.model_validate(of_length.json())
    assert (none.edges, none.generated, none.trained) == ([], [], [])


async def test_a_history_tells_runs_of_one_name_apart(client: httpx.AsyncClient) -> None:
    """Who adds the last spans to those of an earlier answer learns that these are gone."""

    async def first_epoch(run: str) -> int:
        return History.model_validate((await client.get(f"/v1/runs/{run}/history")).json()).first_epoch

    first = await first_epoch("run")
    assert (await client.patch(RUN, json={"batch_size": 8})).status_code == 200
    assert await first_epoch("run") == first, "it is the same run"
    assert (await client.delete(RUN)).status_code == 204
    await make_run(client)
    assert await first_epoch("run") != first

    epochs = []
    for _ in range(3):
        assert (await client.post("/runs/atropos/atropos/register", json=registration())).status_code == 200
        epochs.append(await first_epoch("atropos"))
        await client.get("/runs/atropos/atropos/reset_data")
    assert len(set(epochs)) == 3


async def test_series_are_read_as_they_were_written(client: httpx.AsyncClient, redis_url: str) -> None:
    rewards = {"reward_in": Sketch.of([0.0, 1.0]), "reward_out": Sketch.of([1.0])}
    await write(redis_url, math=Facts({"groups_in": 2, "dropped:stale": 1}, sketches=rewards), code=Facts())
    seconds = 600
    redis = Redis.from_url(redis_url)
    now_s, _ = await redis.time()
    await redis.aclose()
    wanted = {"from": now_s - seconds, "to": now_s + 60}
    found = History.model_validate((await client.get(HISTORY, params=wanted)).json())
    assert list(found.environments) == ["code", "math"]
    assert [value for value in found.run.batches if value is not None] == [2]
    assert [value for value in found.environments["math"].groups_in if value is not None] == [2]
    assert [value for value in found.environments["math"].dropped["stale"] if value is not None] == [1]
    assert found.times_s == list(range(found.from_s, found.to_s, found.step_s))
    one = History.model_validate((await client.get(HISTORY, params={**wanted, "environment": "math"})).json())
    assert list(one.environments) == ["math"]
    some = {**wanted, "fields": "run.batches,environments.share_got", "step_s": 60}
    few = (await client.get(HISTORY, params=some)).json()
    assert few["step_s"] == 60
    steps = [
        (await client.get(HISTORY, params={**wanted, "most_spans": most})).json()["step_s"] for most in (62, 30, 2)
    ]
    assert steps == [10, 60, 900]
    assert (list(few["run"]), {name: list(own) for name, own in few["environments"].items()}) == (
        ["batches"],
        {"code": ["share_got"], "math": ["share_got"]},
    )
    run = (await client.get(HISTORY, params={**wanted, "fields": "run"})).json()
    assert (run["environments"], sum(value or 0 for value in run["run"]["batches"])) == ({}, 2)
    answer = await client.get(f"{HISTORY}/histograms", params={**wanted, "value": "reward", "environment": "math"})
    reward = HistoryHistograms.model_validate(answer.json())
    assert (reward.edges[0], reward.edges[-1]) == (0, 1)
    assert (sum(map(sum, reward.generated)), sum(map(sum, reward.trained))) == (2, 1)
    assert reward.development is None, "there is one span"


async def test_shares_of_environments_are_compared(client: httpx.AsyncClient, redis_url: str) -> None:
    counts: dict[str, float] = {"sequences_in": 41, "tokens_in": 10, "sequences_out": 26, "tokens_out": 30}
    await write(redis_url, gsm8k=Facts(counts), code=Facts({"sequences_in": 59, "sequences_out": 24, "tokens_in": 10}))
    found = HistoryShares.model_validate((await client.get(f"{HISTORY}/shares")).json())
    assert (found.count, found.generated, found.trained) == ("sequences", 100, 50)
    assert found.shift == '"code" is 59 % of what was generated and 48 % of what was trained on.'
    (code, gsm8k) = found.environments
    assert (code.name, code.generated_share, code.trained_share, code.shift) == ("code", 0.59, 0.48, found.shift)
    assert (gsm8k.generated, gsm8k.trained) == (41, 26)
    assert gsm8k.difference == pytest.approx(0.11)
    tokens = HistoryShares.model_validate((await client.get(f"{HISTORY}/shares?count=tokens")).json())
    assert [(one.generated_share, one.trained_share) for one in tokens.environments] == [(0.5, 0), (0.5, 1)]
    before = HistoryShares.model_validate((await client.get(f"{HISTORY}/shares", params={"to": found.from_s})).json())
    assert (before.generated, before.shift, before.environments) == (0, None, [])
    assert (await client.get(f"{HISTORY}/shares?count=bytes")).status_code == 422
    assert (await client.get("/v1/runs/none/history/shares")).status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        "from=-1",
        "from=50&to=40",
        "from=50&to=50",
        "from=nan",
        "to=inf",
        f"to={10**30}",
        "from=yesterday",
        f"environment={'x' * 2000}",
        "step_s=0",
        "step_s=86401",
        "most_spans=0",
        "most_spans=3001",
    ],
)
async def test_absurd_ranges_are_refused(client: httpx.AsyncClient, query: str) -> None:
    paths = [HISTORY, f"{HISTORY}/histograms"] + ([] if query.startswith("environment") else [f"{HISTORY}/shares"])
    for path in paths:
        reply = await client.get(f"{path}?{query}&value=reward")
        assert reply.status_code == 422, reply.text


@pytest.mark.parametrize(
    "fields", ["", "step", "run.", "run.nothing", "run.step,,", "run.step.mean", "environments.x" * 200]
)
async def test_series_that_do_not_exist_are_named(client: httpx.AsyncClient, fields: str) -> None:
    reply = await client.get(HISTORY, params={"fields": fields})
    assert reply.status_code == 422
    assert "query.fields" in reply.json()["detail"]


async def test_the_longest_range_is_bounded(client: httpx.AsyncClient) -> None:
    found = History.model_validate((await client.get(HISTORY, params={"from": 0, "to": 2**53 - 1})).json())
    assert (found.step_s, len(found.times_s) <= 3000) == (900, True)
    assert (await client.get(f"{HISTORY}/histograms?value=colour")).status_code == 422
    assert (await client.get("/v1/runs/none/history")).status_code == 404
