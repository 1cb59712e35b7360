"""Curricula over HTTP: what is answered, and what is refused, with its place, and changes nothing."""

import json
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.store.curriculum.state import CurriculumStateStore
from app.store.redis.keys import RunKeys
from lachesis.wire.curricula import MAX_CATEGORIES, MAX_CATEGORY
from lachesis.wire.runs import YEAR_S
from tests.api.curriculum.conftest import CURRICULUM, ITEMS, LINES, RUN, state
from tests.api.test_metrics import scrape


async def test_settings_are_set_as_a_whole_or_one_by_one(curriculum: httpx.AsyncClient) -> None:
    changed = (await curriculum.patch(CURRICULUM, json={"strategy": "plr", "staleness_share": 0.3})).json()
    assert (changed["settings"]["strategy"], changed["settings"]["n_bins"]) == ("plr", 4)
    assert changed["bins"] == [2, 2, 2, 2]
    whole = (await curriculum.put(CURRICULUM, json={"strategy": "plr"})).json()
    assert (whole["settings"]["n_bins"], whole["settings"]["staleness_share"]) == (5, 0.1)
    assert whole["items"] == 8
    assert [one["name"] for one in (await curriculum.get(f"{RUN}/curricula")).json()["curricula"]] == ["gsm8k"]


async def test_if_absent_leaves_an_existing_curriculum_as_it_is(
    curriculum: httpx.AsyncClient,
) -> None:
    if_absent = {"if_absent": "true"}
    kept = await curriculum.put(CURRICULUM, json={"strategy": "plr"}, params=if_absent)
    assert (kept.json()["settings"]["strategy"], kept.json()["settings"]["n_bins"]) == ("learnability", 4)
    made = await curriculum.put(f"{RUN}/curricula/new", json={"strategy": "plr"}, params=if_absent)
    assert made.json()["settings"]["strategy"] == "plr"
    refused = await curriculum.put(CURRICULUM, json={"strategy": "best"}, params=if_absent)
    assert refused.status_code == 422


async def test_items_may_be_registered_by_their_keys_alone_again_and_again(curriculum: httpx.AsyncClient) -> None:
    reply = await curriculum.post(f"{CURRICULUM}/items", json={"items": ["q1", {"key": "q2"}, "new"]})
    assert reply.json() == {"registered": 1, "known": 2}
    assert (await curriculum.get(f"{CURRICULUM}/items/q1")).json()["prior"] == 0.125


async def test_a_key_may_come_twice_unless_two_things_are_said_of_it(curriculum: httpx.AsyncClient) -> None:
    about = {"key": "new", "category": "c", "metadata": {"a": [1], "b": 2}}
    items = ["new", about, {**about, "metadata": {"b": 2, "a": [1]}}, {"key": "new", "prior": 0.5}, "q1"]
    reply = await curriculum.post(f"{CURRICULUM}/items", json={"items": items})
    assert reply.json() == {"registered": 1, "known": 4}
    item = (await curriculum.get(f"{CURRICULUM}/items/new")).json()
    assert (item["category"], item["prior"], item["metadata"]) == ("c", 0.5, {"a": [1], "b": 2})


async def test_what_is_named_of_an_item_is_changed_and_null_takes_it_away(curriculum: httpx.AsyncClient) -> None:
    path = f"{CURRICULUM}/items/q1"
    changed = (await curriculum.patch(path, json={"category": "c", "metadata": {"a": 1}})).json()
    assert (changed["category"], changed["metadata"], changed["prior"]) == ("c", {"a": 1}, 0.125)
    cleared = (await curriculum.patch(path, json={"category": None, "prior": None, "metadata": None})).json()
    assert (cleared["category"], cleared["metadata"], cleared["prior"], cleared["mean_reward"]) == (None,) * 4


async def test_a_sample_says_of_each_item_where_it_stands_and_why_it_was_chosen(curriculum: httpx.AsyncClient) -> None:
    await curriculum.patch(f"{CURRICULUM}/items/q4", json={"metadata": {"n": 4}})
    sample = (await curriculum.post(f"{CURRICULUM}/samples", json={"n": 8})).json()
    assert sorted(item["key"] for item in sample["items"]) == [item["key"] for item in ITEMS]
    assert sum(item["probability"] for item in sample["items"]) == pytest.approx(1)
    of_q4 = next(item for item in sample["items"] if item["key"] == "q4")
    assert (of_q4["bin"], of_q4["metadata"]) == (1, {"n": 4})
    assert "learnability" in of_q4["why"]
    assert (sample["retry_after_s"], sample["in_flight"]) == (None, 8)
    short = (await curriculum.post(f"{CURRICULUM}/samples", json={"n": 3})).json()
    assert (short["items"], short["in_flight"]) == ([], 8)
    assert 590 < short["retry_after_s"] <= 600
    bins = (await curriculum.post(f"{CURRICULUM}/samples", json={"n": 30, "bins_only": True})).json()
    assert (len(bins["bins"]), bins["items"]) == (30, [])
    assert set(bins["bins"]) <= set(range(4))


async def test_a_sample_asked_for_again_is_the_same_until_its_items_are_given_back(
    curriculum: httpx.AsyncClient,
) -> None:
    body = {"n": 3, "request_id": "w0-17"}
    first, again = [await curriculum.post(f"{CURRICULUM}/samples", json=body) for _ in range(2)]
    assert "idempotent-replay" not in first.headers
    assert again.headers["idempotent-replay"] == "true"
    sample, keys = first.json()["sample"], [item["key"] for item in first.json()["items"]]
    assert again.json()["sample"] == sample
    assert sorted(item["key"] for item in again.json()["items"]) == sorted(keys)
    for released in (3, 0):
        reply = await curriculum.post(f"{CURRICULUM}/samples/{sample}/release", json={"items": keys})
        assert reply.json() == {"released": released}
    others = (await curriculum.post(f"{CURRICULUM}/samples", json=body)).json()
    assert (others["sample"] != sample, others["in_flight"]) == (True, 3)


async def test_a_repeated_sample_is_short_without_a_reason_after_one_item_was_observed(
    curriculum: httpx.AsyncClient,
) -> None:
    body = {"n": 3, "request_id": "w0-18"}
    keys = [item["key"] for item in (await curriculum.post(f"{CURRICULUM}/samples", json=body)).json()["items"]]
    seen = {"observations": [{"item": keys[0], "rewards": [1.0]}]}
    assert (await curriculum.post(f"{CURRICULUM}/observations", json=seen)).status_code == 200
    again = (await curriculum.post(f"{CURRICULUM}/samples", json=body)).json()
    assert sorted(item["key"] for item in again["items"]) == sorted(keys[1:])
    assert again["missing"] is again["retry_after_s"] is None


async def test_a_sample_says_why_it_has_fewer_items_than_were_asked_for(curriculum: httpx.AsyncClient) -> None:
    async def missing(n: int, path: str = CURRICULUM, **about: Any) -> tuple[str | None, float]:
        sample = (await curriculum.post(f"{path}/samples", json={"n": n, **about})).json()
        return sample["missing"], sample["in_flight_ttl_s"]

    empty = f"{RUN}/curricula/empty"
    await curriculum.put(empty, json={"in_flight_ttl_s": 7})
    assert await missing(1, empty) == await missing(1, empty, bins_only=True) == ("no_items", 7)
    weights = {"hard_threshold": -1, "hard_weight": 1, "normal_weight": 0, "easy_weight": 0}  # none is hard
    await curriculum.patch(CURRICULUM, json={"strategy": "difficulty_pools", **weights})
    assert await missing(1) == await missing(1, bins_only=True) == ("not_drawn", 600)
    assert await missing(6, strategy="uniform") == (None, 600)
    assert await missing(6, strategy="uniform") == await missing(1, strategy="uniform") == ("in_flight", 600)
    assert await missing(6, strategy="uniform", bins_only=True) == (None, 600)
    await curriculum.patch(CURRICULUM, json={"in_flight_ttl_s": 0, "strategy": "uniform"})
    await curriculum.post(f"{empty}/items", json={"items": ["a"]})
    await curriculum.patch(empty, json={"in_flight_ttl_s": 0})
    assert await missing(2, empty) == ("not_drawn", 0)


async def test_the_step_is_the_runs_unless_somebody_names_one(curriculum: httpx.AsyncClient) -> None:
    await curriculum.post("/v1/runs", json={"name": "s", "batch_size": 1, "atropos": {"starting_step": 10}})
    path = "/v1/runs/s/curricula/c"
    await curriculum.put(path, json={"strategy": "competence_based", "form": "cdf", "total_steps": 10})
    await curriculum.post(f"{path}/items", json={"items": ITEMS})

    async def counts(step: dict[str, int]) -> tuple[float, int, int]:
        metrics = (await curriculum.get(f"{path}/metrics", params=step)).json()["metrics"]
        would = (await curriculum.post(f"{path}/what-if", json={"n": 8, **step})).json()["current"]["items"]
        sample = (await curriculum.post(f"{path}/samples", json={"n": 8, **step})).json()
        keys = [item["key"] for item in sample["items"]]
        await curriculum.post(f"{path}/samples/{sample['sample']}/release", json={"items": keys})
        return metrics["curriculum/progress"], len(would), len(keys)

    assert await counts({"step": 0}) == (0, 1, 1)
    assert await counts({}) == await counts({"step": 10}) == (1, 8, 8)


async def test_observations_sent_again_under_their_request_are_counted_once(curriculum: httpx.AsyncClient) -> None:
    body = {"observations": [{"item": "q1", "rewards": [1, 0]}, {"item": "q1", "rewards": [1]}], "request_id": "x"}
    first = await curriculum.post(f"{CURRICULUM}/observations", json=body)
    again = await curriculum.post(f"{CURRICULUM}/observations", json=body)
    assert "idempotent-replay" not in first.headers
    assert again.headers["idempotent-replay"] == "true"
    assert first.json() == again.json()
    assert first.json()["observed"][1] == {"item": "q1", "bin": 1, "mean_reward": pytest.approx(0.65), "count": 2}


async def test_items_are_counted_by_mean_reward(curriculum: httpx.AsyncClient) -> None:
    await curriculum.post(f"{CURRICULUM}/items", json={"items": ["new"]})
    await curriculum.post(f"{CURRICULUM}/observations", json={"observations": [{"item": "q0", "rewards": [3.0]}]})
    found = (await curriculum.get(CURRICULUM)).json()
    assert found["reward_edges"] == pytest.approx([tenth / 10 for tenth in range(11)])
    assert found["items_by_reward"] == [0, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    assert (found["items_unseen"], found["items"]) == (1, 9)


async def test_items_are_found_by_a_part_of_their_key(curriculum: httpx.AsyncClient) -> None:
    path, odd = f"{CURRICULUM}/items", "a*[b]?\\-^c"
    named = [odd, "ab", *(f"math/{n}" for n in range(1500))]
    await curriculum.post(path, json={"items": named})

    async def found(**query: str | int) -> list[str]:
        keys: list[str] = []
        cursor: str | None = "0"
        while cursor is not None:
            page = (await curriculum.get(path, params={"cursor": cursor, **query})).json()
            assert len(page["items"]) <= query.get("limit", 100)
            keys += [item["key"] for item in page["items"]]
            cursor = page["cursor"]
        assert len(keys) == len(set(keys))
        return sorted(keys)

    assert await found(search="th/", limit=7) == sorted(named[2:])
    assert await found(search="/1499", limit=1) == ["math/1499"]
    for none in ("MATH", "moth/1499"):
        assert await found(search=none) == []
    for part in (odd, "*", "[b]", "?", "\\", "^"):
        assert await found(search=part) == [odd]


@pytest.mark.parametrize(
    "query",
    [
        *("search=", f"search={'x' * 513}", "search=a&sort=signal", "search=a&descending=true", "search=a&bin=0"),
        *("search=a&cursor=x", "search=a&cursor=99999999999999999999", "cursor=5-3", "cursor=1-"),
    ],
)
async def test_a_search_that_cannot_be_is_refused(curriculum: httpx.AsyncClient, query: str) -> None:
    reply = await curriculum.get(f"{CURRICULUM}/items?{query}")
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_field"), reply.text


async def test_metrics_are_those_of_the_curriculum(curriculum: httpx.AsyncClient) -> None:
    await curriculum.post(f"{CURRICULUM}/observations", json={"observations": [{"item": "q7", "rewards": [0, 1]}]})
    metrics = (await curriculum.get(f"{CURRICULUM}/metrics")).json()["metrics"]
    assert metrics["curriculum/items"] == 8
    assert metrics["curriculum/items_tracked"] == metrics["curriculum/total_updates"] == 1
    assert metrics["curriculum/mean_difficulty"] == pytest.approx((sum(range(7)) / 8 + 0.5) / 8)
    assert metrics["curriculum/bin_0_count"] == 2
    assert 0 < metrics["curriculum/entropy"] < 2.1


async def test_a_state_may_leave_it_to_its_samples_to_say_what_all_steps_are(curriculum: httpx.AsyncClient) -> None:
    """Atropos's has no `total_steps`; settings that are made have."""
    document = {"strategy": "easy_first", "item_scores": {"a": [0.25, 4]}}
    assert (await curriculum.put(f"{CURRICULUM}/state", json=document)).status_code == 200
    for query, progress in (("", 0), ("?step=5&total_steps=10", 0.5)):
        metrics = (await curriculum.get(f"{CURRICULUM}/metrics{query}")).json()["metrics"]
        assert metrics["curriculum/progress"] == progress
    sample = (await curriculum.post(f"{CURRICULUM}/samples", json={"n": 1, "total_steps": 10})).json()
    assert [item["key"] for item in sample["items"]] == ["a"]
    for changes, status in (({"n_bins": 3}, 422), ({"total_steps": 9}, 200), ({"total_steps": None}, 422)):
        assert (await curriculum.patch(CURRICULUM, json=changes)).status_code == status, changes


async def test_prometheus_reads_each_curriculum_of_each_run(curriculum: httpx.AsyncClient) -> None:
    await curriculum.put(f"{RUN}/curricula/empty", json={})
    await curriculum.post(f"{CURRICULUM}/items", json={"items": ["unknown"]})
    await curriculum.post(f"{CURRICULUM}/observations", json={"observations": [{"item": "q7", "rewards": [0, 1]}]})
    await curriculum.post(f"{CURRICULUM}/samples", json={"n": 3})
    page = await scrape(curriculum)

    def value(name: str, **labels: str) -> float:
        return page.value(f"lachesis_curriculum_{name}", curriculum="gsm8k", **labels)

    assert (value("items", state="seen"), value("items", state="unseen")) == (1, 8)
    assert (value("items_in_flight"), value("observations"), value("samples")) == (3, 1, 1)
    told = (await curriculum.get(f"{CURRICULUM}/metrics")).json()["metrics"]
    assert value("mean_reward") == told["curriculum/mean_difficulty"]
    assert page.value("lachesis_curriculum_items", curriculum="empty", state="seen") == 0


async def test_what_is_saved_of_atroposs_scheduler_can_be_restored(curriculum: httpx.AsyncClient) -> None:
    document = {
        "strategy": "competence_based", "n_bins": 3, "temperature": 0.5, "ema_alpha": 0.3, "competence_threshold": 0.6,
        "item_scores": {"a": [0.25, 4], "b": [0.75, 1]}, "bin_boundaries": [0.5], "last_rebin_count": 2,
    }  # fmt: skip
    assert (await curriculum.put(f"{CURRICULUM}/state", json=document)).json() == {"items": 2, "items_seen": 2}
    settings = (await curriculum.get(CURRICULUM)).json()["settings"]
    assert (settings["strategy"], settings["form"], settings["competence_threshold"]) == (
        "competence_based", "frontier", 0.6,
    )  # fmt: skip
    item = (await curriculum.get(f"{CURRICULUM}/items/a")).json()
    assert (item["mean_reward"], item["count"], item["bin"]) == (0.25, 4, 2)


def rewarded(*rewards: Any, item: str = "a") -> str:
    """An observation, NaN and all."""
    return json.dumps({"observations": [{"item": item, "rewards": rewards}]})


def described(**about: Any) -> str:
    """An item with this said of it."""
    return json.dumps({"items": [{"key": "a", **about}]})


DEEP = '{"items": [{"key": "a", "metadata": ' + "[" * 999 + "]" * 999 + "}]}"
REFUSED: dict[str, tuple[str, str, Any, int, str]] = {
    "a strategy nobody knows": ("PATCH", "", {"strategy": "best"}, 422, "strategy: "),
    "an unknown setting": ("PATCH", "", {"n_bin": 3}, 422, "n_bin: is unknown here; did you mean n_bins?"),
    "no bins": ("PATCH", "", {"n_bins": 0}, 422, "n_bins: "),
    "a temperature of 0": ("PUT", "", {"temperature": 0}, 422, "temperature: "),
    "an infinite temperature": ("PUT", "", '{"temperature": 1e999}', 422, "temperature: "),
    "thresholds the wrong way round": ("PATCH", "", {"easy_threshold": 0.1}, 422, "easy_threshold: "),
    "rewards the wrong way round": ("PATCH", "", {"reward_max": -1}, 422, "reward_max: "),
    "a switch that asks for steps": ("PATCH", "", {"strategy": "easy_first"}, 422, "total_steps: "),
    "settings that ask for steps": ("PUT", "", {"strategy": "competence_based"}, 422, "total_steps: "),
    "settings that are none": ("PUT", "", [1], 422, ""),
    "no items": ("POST", "/items", {"items": []}, 422, "items: "),
    "an item without a key": ("POST", "/items", {"items": ["a", {"prior": 1}]}, 422, "items[1].key: "),
    "an empty key": ("POST", "/items", {"items": [""]}, 422, "items[0].key: "),
    "a key of 10 kB": ("POST", "/items", {"items": ["x" * 10_000]}, 422, "items[0].key: "),
    "two priors": ("POST", "/items", {"items": [{"key": "a", "prior": 1}, "b", "a", {"key": "a", "prior": 0}]}, 422,
        "items[3].prior: differs from items[0], which has the same key 'a'"),
    "two metadata": ("POST", "/items", {"items": [{"key": "a", "metadata": {}}, {"key": "a", "metadata": {"a": 1}}]},
        422, "items[1].metadata: differs from items[0], which has the same key 'a'"),
    "half a surrogate pair": ("POST", "/items", '{"items": ["\\ud800"]}', 400, "half of a surrogate"),
    "a prior that is none": ("POST", "/items", '{"items": [{"key": "a", "prior": NaN}]}', 422, "items[0].prior: "),
    "a prior out of range": ("POST", "/items", {"items": [{"key": "a", "prior": 1e308}]}, 422, "items[0].prior: "),
    "an item of a number": ("POST", "/items", {"items": [7]}, 422, "items[0]: "),
    "deep metadata": ("POST", "/items", DEEP, 400, "nested"),
    "much metadata": ("POST", "/items", described(metadata={"x": "y" * 5000}), 422, "items[0].metadata: "),
    "an unknown field of an item": ("POST", "/items", described(p=1), 422, "items[0].p: "),
    "no observations": ("POST", "/observations", {"observations": []}, 422, "observations: "),
    "no rewards": ("POST", "/observations", rewarded(), 422, "observations[0].rewards: "),
    "a reward that is none": ("POST", "/observations", rewarded(1, float("nan")), 422, "observations[0].rewards[1]: "),
    "a reward of 1e308": ("POST", "/observations", rewarded(1e308), 422, "observations[0].rewards[0]: "),
    "a reward in words": ("POST", "/observations", rewarded("x"), 422, "observations[0].rewards[0]: "),
    "a long key": ("POST", "/observations", rewarded(1, item="x" * 10_000), 422, "observations[0].item: "),
    "observations twice": ("POST", "/observations", '{"observations": [], "observations": []}', 400, "twice"),
    "too many observations": (
        "POST", "/observations", {"observations": [{"item": "a", "rewards": [1]}] * 10_001}, 422, "observations: "),
    "a sample of a billion": ("POST", "/samples", {"n": 10**9}, 422, "n: "),
    "a sample of none": ("POST", "/samples", {"n": 0}, 422, "n: "),
    "a request without a name": ("POST", "/samples", {"n": 1, "request_id": ""}, 422, "request_id: "),
    "a sample that is none": ("POST", "/samples/loaded/release", {"items": ["q1"]}, 422, "path.sample: "),
    "nothing given back": ("POST", f"/samples/{'0' * 32}/release", {"items": []}, 422, "items: "),
    "a step before the first": ("POST", "/samples", {"n": 1, "step": -1}, 422, "step: "),
    "a strategy that asks for steps": ("POST", "/samples", {"n": 1, "strategy": "easy_first"}, 422, "total_steps: "),
    "a sample of another strategy": ("POST", "/samples", {"n": 1, "strategy": "x"}, 422, "strategy: "),
    "a comparison that cannot be": ("POST", "/what-if", {"n_bins": 1000}, 422, "n_bins: "),
    "a comparison of steps": ("POST", "/what-if", {"strategy": "easy_first"}, 422, "total_steps: "),
    "a cursor of another kind": ("GET", "/items?cursor=1.5", None, 422, "query.cursor: "),
    "a cursor with a sign": ("GET", "/items?cursor=-1", None, 422, "query.cursor: "),
    "a page of too many": ("GET", "/items?limit=1001", None, 422, "query.limit: "),
    "a bin that is not there": ("GET", "/items?bin=4", None, 422, "query.bin: there are 4 bins"),
    "a bin in another order": ("GET", "/items?bin=0&sort=last", None, 422, "query.bin: "),
    "another order": ("GET", "/items?sort=key", None, 422, "query.sort: "),
    "an unknown parameter": ("GET", "/items?order=mean_reward", None, 422, "query.order: "),
    "an item that is not there": ("GET", "/items/nobody", None, 404, "no item 'nobody'"),
    "a change of nobody": ("PATCH", "/items/nobody", {"prior": 1}, 404, "no item 'nobody'"),
    "an item of 10 kB": ("GET", "/items/" + "x" * 10_000, None, 422, "path.key: "),
    "a change of a key": ("PATCH", "/items/q1", {"key": "q2"}, 422, "key: "),
}  # fmt: skip


async def test_what_is_wrong_is_refused_with_its_place_and_changes_nothing(curriculum: httpx.AsyncClient) -> None:
    before = await state(curriculum)
    for fault, (method, path, body, status, what) in REFUSED.items():
        content = body if isinstance(body, str) else None if body is None else json.dumps(body)
        reply = await curriculum.request(method, CURRICULUM + path, content=content)
        assert reply.status_code == status, (fault, reply.text)
        assert what in reply.json()["detail"], (fault, reply.text)
        assert await state(curriculum) == before, fault


async def test_there_may_be_a_thousand_categories_and_no_more(curriculum: httpx.AsyncClient) -> None:
    items = [{"key": f"k{n}", "category": f"c{n}"} for n in range(1001)]
    reply = await curriculum.post(f"{CURRICULUM}/items", json={"items": items})
    assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, ["items", 1000])
    assert (await curriculum.get(CURRICULUM)).json()["items"] == 1008, "those before are registered"


async def test_a_state_with_the_longest_categories_can_be_restored(curriculum: httpx.AsyncClient) -> None:
    bold_digits = {ord("0") + digit: chr(0x1D7CE + digit) for digit in range(10)}  # four bytes each
    names = [f"{n:0{MAX_CATEGORY}}".translate(bold_digits) for n in range(MAX_CATEGORIES)]
    await curriculum.patch(CURRICULUM, json={"strategy": "bandit", "arms": "categories"})
    items = [{"key": str(n), "category": name} for n, name in enumerate(names)]
    assert (await curriculum.post(f"{CURRICULUM}/items", json={"items": items})).json()["registered"] == MAX_CATEGORIES
    observations = [{"item": str(n), "rewards": [0.0, 1 / 3]} for n in range(MAX_CATEGORIES)]
    await curriculum.post(f"{CURRICULUM}/observations", json={"observations": observations})
    saved = (await curriculum.get(f"{CURRICULUM}/state")).content
    reply = await curriculum.put(f"{CURRICULUM}/state", content=saved, headers=LINES)
    assert reply.status_code == 200, reply.text
    header, *items_saved = saved.splitlines()
    again, *items_restored = (await curriculum.get(f"{CURRICULUM}/state")).content.splitlines()
    assert json.loads(again) == json.loads(header)
    assert sorted(items_restored) == sorted(items_saved)


async def test_a_state_is_restored_although_items_were_taken_for_a_year_while_it_was_saved(
    curriculum: httpx.AsyncClient, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_part = CurriculumStateStore.part

    async def part(*args: Any) -> Any:
        await redis_client.hincrby(RunKeys("r").run, "clock_ms", 5000)  # type: ignore[misc]
        await curriculum.post(f"{CURRICULUM}/samples", json={"n": 3})
        return await read_part(*args)

    await curriculum.patch(CURRICULUM, json={"in_flight_ttl_s": YEAR_S})
    monkeypatch.setattr(CurriculumStateStore, "part", part)
    saved = (await curriculum.get(f"{CURRICULUM}/state")).content
    reply = await curriculum.put(f"{CURRICULUM}/state", content=saved, headers=LINES)
    assert reply.status_code == 200, reply.text
    assert (await curriculum.get(CURRICULUM)).json()["in_flight"] == 3


HEAD = {"format": "lachesis.curriculum", "version": 1, "generator": "Philox", "counter": 0, "samples": 0, "updates": 0}
HEADER = json.dumps({**HEAD, "policy": {}, "arms": {}, "categories": ["c"]})
KNOWN = {"ema": 0.5, "count": 1, "passed": 1, "failed": 0, "signal": 0, "last": 0.5}
ITEM = json.dumps({"key": "a", "estimate": KNOWN})
END = '{"items":1}'


def of(**known: Any) -> str:
    """An item of which this is known."""
    return json.dumps({"key": "a", "estimate": KNOWN | known})


def headed(**about: Any) -> str:
    """A header with this in it."""
    return json.dumps(json.loads(HEADER) | about)


DOCUMENTS: dict[str, tuple[list[str], int, str]] = {
    "nothing": ([], 400, "the document is empty"),
    "no header": ([ITEM, '{"items":1}'], 422, "line[1].key: "),
    "a header of another version": ([headed(version=9), END], 422, "line[1].version: "),
    "settings that are none": ([headed(policy={"n_bins": 0}), END], 422, "line[1].policy.n_bins: "),
    "settings nobody may set": ([headed(policy={"candidates": 5000}), END], 422, "line[1].policy.candidates: "),
    "a category twice": ([headed(categories=["d", "c", "c"]), END], 422, "line[1].categories: has 'c' 2 times"),
    "too many categories": (
        [headed(categories=[str(n) for n in range(1001)]), END],
        422,
        "line[1].categories: has 1001 names, of at most 1000",
    ),
    "categories of numbers": ([headed(categories=[1]), END], 422, "line[1].categories: should be a list of names"),
    "an unknown arm": ([headed(arms={"foo": 1}), END], 422, "line[1].arms.foo: "),
    "the arm of an unknown bin": ([headed(arms={"bin:100": 1}), END], 422, "line[1].arms.bin:100: "),
    "the arm of an unknown category": ([headed(arms={"category:d": 1}), END], 422, "line[1].arms.category:d: "),
    "no end": ([HEADER, ITEM], 400, "the document is cut off after line 2"),
    "another end": ([HEADER, ITEM, '{"items":2}'], 400, "line 3: declares 2 items; the document has 1"),
    "more after the end": ([HEADER, ITEM, '{"items":1}', ITEM.replace('"a"', '"b"')], 422, "line[3].items: "),
    "a line that is none": ([HEADER, ITEM, "{]", '{"items":2}'], 400, "line 3: not JSON at byte 1"),
    "an empty line": ([HEADER, "", ITEM, '{"items":1}'], 400, "line 2: "),
    "a number that is none": ([HEADER, of(ema=float("nan")), END], 422, "line[2].estimate.ema: "),
    "a count that is none": ([HEADER, of(count=-1), END], 422, "line[2].estimate.count: "),
    "a key that is none": ([HEADER, ITEM.replace('"a"', "7"), '{"items":1}'], 422, "line[2].key: "),
    "an item twice": ([HEADER, ITEM, ITEM, '{"items":2}'], 422, "line[3].key: "),
    "an item twice, far apart": (
        [HEADER, ITEM, *(json.dumps({"key": f"k{n}"}) for n in range(1500)), ITEM, '{"items":1502}'],
        422,
        "line[1503].key: item 'a' is in the document twice",
    ),
    "a category nobody named": ([HEADER, ITEM[:-1] + ',"category":"d"}', '{"items":1}'], 422, "line[2].category: "),
    "a line without end": ([HEADER, "x" * 200_000], 413, "a line of more than"),
}  # fmt: skip


async def test_a_broken_document_is_refused_with_its_line_and_changes_nothing(
    curriculum: httpx.AsyncClient, redis_client: Redis
) -> None:
    before, keys = await state(curriculum), set(await redis_client.keys("*curricul*"))
    for fault, (lines, status, what) in DOCUMENTS.items():
        reply = await curriculum.put(f"{CURRICULUM}/state", content="\n".join(lines), headers=LINES)
        assert reply.status_code == status, (fault, reply.text)
        assert what in reply.json()["detail"], (fault, reply.text)
        assert await state(curriculum) == before, fault
        assert set(await redis_client.keys("*curricul*")) == keys, fault


async def test_a_broken_state_of_atropos_is_refused(curriculum: httpx.AsyncClient) -> None:
    broken: list[tuple[Any, str]] = [
        ([], "expected the state"),
        ({"item_scores": {"a": [1]}}, "item_scores.a: "),
        ({"item_scores": {"": [0.5, 1]}}, "item_scores."),
        ({"item_scores": {}, "n_bins": "x"}, "n_bins: "),
        ({"strategy": "uniform"}, "item_scores: "),
    ]
    for document, what in broken:
        reply = await curriculum.put(f"{CURRICULUM}/state", json=document)
        assert reply.status_code in (400, 422), document
        assert what in reply.json()["detail"]
    twice = b'{"item_scores": {"a": [0.5, 1], "b": [0.5, 1], "a": [0.1, 2]}}'
    reply = await curriculum.put(f"{CURRICULUM}/state", content=twice, headers={"Content-Type": "application/json"})
    assert (reply.status_code, "'a' twice" in reply.json()["detail"]) == (400, True), reply.text


async def test_a_state_in_another_form_is_not_read(curriculum: httpx.AsyncClient) -> None:
    packed = await curriculum.put(f"{CURRICULUM}/state", content=b"x", headers=LINES | {"Content-Encoding": "gzip"})
    assert (packed.status_code, packed.json()["code"]) == (415, "unsupported_encoding")
    other = await curriculum.put(f"{CURRICULUM}/state", content=b"x", headers={"Content-Type": "text/csv"})
    assert (other.status_code, other.json()["code"]) == (415, "unsupported_media_type")


async def test_what_is_missing_is_named_the_run_first(client: httpx.AsyncClient) -> None:
    for code in ("run_not_found", "curriculum_not_found"):
        for path in ("", "/metrics", "/items", "/items/a", "/state"):
            missing = await client.get(CURRICULUM + path)
            assert (missing.status_code, missing.json()["code"]) == (404, code), path
        await client.post("/v1/runs", json={"name": "r", "batch_size": 1})
