"""A curriculum as its workers use it: registered, sampled, observed, changed while it runs."""

import asyncio
import math
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from app.core.curriculum.indexes import ItemIndex
from app.main import build_services
from app.services.curriculum.sampling import CurriculumSampleRequest
from app.settings import ServiceSettings
from app.store.curriculum.entries import HISTORY, MAX_CURRICULA, ItemWrite
from app.store.curriculum.items import Place, SampleId
from app.store.curriculum.store import CurriculumStore
from app.store.redis.client import RedisClient
from app.store.redis.pipeline import Command
from app.store.runs.store import RunStore
from lachesis.wire.curricula import CurriculumStrategy
from lachesis.wire.errors import CurriculumNotFound, InvalidField, ItemNotFound, RunNotFound
from tests.core.views import TTL_MS
from tests.script_names import name_of
from tests.services.accounting import keys_of_runs
from tests.services.conftest import RUN, Process
from tests.services.curriculum.runs import (
    KEYS,
    NAME,
    Twice,
    contents,
    dump,
    keys_of,
    make,
    observe,
    pass_time,
    register,
    sample,
)

Start = Callable[..., Process]
ITEMS = [f"item{n:02d}" for n in range(40)]


async def mean_reward(services: object, key: str) -> float:
    facts, _ = await services.curriculum.items.item(RUN, NAME, key)  # type: ignore[attr-defined]
    return float(facts.stored.estimate.ema)


async def test_the_same_registration_again_changes_nothing(process: Start, redis_client: Redis) -> None:
    services, _ = process()
    await make(services)
    assert await register(services, *ITEMS, category="algebra", prior=0.5, metadata='{"level":1}') == 40
    before = await dump(redis_client)
    assert await register(services, *ITEMS, category="algebra", prior=0.5, metadata='{"level":1}') == 0
    assert await dump(redis_client) == before


async def test_observations_are_averaged_the_first_one_begins_and_a_prior_gives_way(process: Start) -> None:
    services, _ = process()
    await make(services, ema_alpha=0.25)
    await register(services, "known", prior=0.9)
    await observe(services, [("known", [1.0, 0.0]), ("new", [1.0]), ("new", [0.0, 0.0])])
    assert await mean_reward(services, "known") == 0.5
    assert await mean_reward(services, "new") == 0.75
    facts, _ = await services.curriculum.items.item(RUN, NAME, "new")
    assert facts.stored.history == (1.0, 0.0)
    assert facts.stored.estimate.count == 2


async def test_what_is_said_of_an_item_and_taken_back_leaves_no_trace(process: Start, redis_client: Redis) -> None:
    services, _ = process()
    await make(services)
    await register(services, "a", "b", category="algebra")
    own = (await CurriculumStore(services.connection).existing(RUN, NAME)).curriculum_id
    before = await contents(redis_client, own)
    await register(services, "a", prior=-0.7, category="topology", metadata="{}")
    await services.curriculum.items.change(RUN, NAME, ItemWrite("a", "algebra", math.nan, ""))
    after = await contents(redis_client, own)
    assert after.pop("category_numbers").keys() - before.pop("category_numbers").keys() == {b"topology"}
    assert after == before
    assert (await services.curriculum.administration.facts(RUN, NAME)).census.reward_sum == 0


async def test_the_last_fifty_scores_of_an_item_are_kept(process: Start) -> None:
    services, _ = process()
    await make(services)
    scores = [n / 8 for n in range(HISTORY + 7)]
    await observe(services, [("a", [score]) for score in scores[:30]])
    await observe(services, [("a", [score]) for score in scores[30:]])
    facts, _ = await services.curriculum.items.item(RUN, NAME, "a")
    assert list(facts.stored.history) == scores[-HISTORY:]


async def test_a_request_that_comes_again_is_counted_once_whichever_process_gets_it(process: Start) -> None:
    (one, _), (other, _) = process(), process()
    await make(one)
    rewards = {"a": [1.0], "b": [0.0, 1.0]}
    assert not await observe(one, rewards, "request")
    assert await observe(other, rewards, "request")
    assert not await observe(other, rewards, "another")
    facts, _ = await one.curriculum.items.item(RUN, NAME, "a")
    assert facts.stored.estimate.count == 2


@pytest.mark.parametrize("window_s", [0.0, 30.0])
async def test_a_request_counts_once_for_two_minutes_if_groups_are_recognised_for_less(
    process: Start, redis_client: Redis, window_s: float
) -> None:
    services, _ = process()
    await make(services)
    await services.runs.administration.change(RUN, {"dedup_window_s": window_s})
    assert not await observe(services, {"a": [1.0]}, "request")
    await pass_time(redis_client, 60)
    assert await observe(services, {"a": [1.0]}, "request")
    await pass_time(redis_client, 60)
    assert not await observe(services, {"a": [1.0]}, "request")


async def test_a_request_is_forgotten_in_time(process: Start, redis_client: Redis) -> None:
    services, _ = process()
    await make(services)
    requests = KEYS.curriculum_part(
        (await CurriculumStore(services.connection).existing(RUN, NAME)).curriculum_id, "requests"
    )
    await observe(services, {"a": [1.0]}, "named")
    await observe(services, {"a": [1.0]})
    assert await redis_client.zcard(requests) == 2, "one without a name is only told from its own repetitions"
    await pass_time(redis_client, 3600)
    assert not await observe(services, {"a": [1.0]}, "named")
    assert await redis_client.zcard(requests) == 1


async def test_an_item_in_flight_is_not_drawn_until_observed_or_expired(process: Start, redis_client: Redis) -> None:
    (one, _), (other, _) = process(), process()
    await make(one, in_flight_ttl_s=300.0)
    await register(one, *ITEMS)
    samples = await asyncio.gather(*(sample(services, 10) for services in (one, other, one)))
    handed_out = [key for each in samples for key in keys_of(each)]
    assert len(set(handed_out)) == len(handed_out) == 30
    rest = await sample(other, 20)
    assert set(keys_of(rest)) == set(ITEMS) - set(handed_out)
    assert (rest.in_flight, rest.free_s) == (40, pytest.approx(300, abs=30))
    assert keys_of(await sample(one, 1)) == []
    await observe(one, {handed_out[3]: [1.0]})
    assert keys_of(await sample(other, 5)) == [handed_out[3]]
    await pass_time(redis_client, 330)
    assert sorted(keys_of(await sample(other, 40))) == ITEMS


async def test_without_a_ttl_nothing_is_held_and_samples_have_no_item_twice(process: Start) -> None:
    services, _ = process()
    await make(services, in_flight_ttl_s=0.0)
    await register(services, *ITEMS)
    for _ in range(3):
        found = keys_of(await sample(services, 40))
        assert sorted(found) == ITEMS


async def test_what_is_sent_twice_because_an_answer_was_lost_is_done_once(
    process: Start, redis_client: Redis, redis_url: str
) -> None:
    """Only the numbers of samples differ: some are skipped."""
    twice = Twice(redis_url, 5.0)
    once, again = process()[0], build_services(ServiceSettings(redis_url=SecretStr(redis_url)), twice, "tested")
    ends = []
    for services in (once, again):
        await make(services)
        await register(services, *ITEMS[:30], category="algebra", prior=0.5)
        sampled = [keys_of(await sample(services, 7, seed=seed)) for seed in range(3)]
        assert not await observe(services, {key: [0.25, 1.0] for key in sampled[0]}) or services is again
        states = services.curriculum.states
        await states.load(RUN, NAME, await states.save(RUN, NAME))
        view = await CurriculumStore(services.connection).existing(RUN, NAME)
        await services.curriculum.items._items.delete(view, sampled[1][:2])
        end = await contents(redis_client, view.curriculum_id)
        del end["drawn"]
        facts = await services.curriculum.administration.facts(RUN, NAME)
        in_flight = await redis_client.zcard(KEYS.curriculum_part(view.curriculum_id, "in_flight"))
        holders = await redis_client.hlen(KEYS.curriculum_part(view.curriculum_id, "holders"))  # type: ignore[misc]
        assert (in_flight, holders, facts.census.in_flight) == (12, 12, 12)
        ends.append((sampled, end, facts.census.reward_sum, facts.census.updates))
        await services.curriculum.administration.delete(RUN, NAME)
    assert ends[0] == ends[1]
    await twice.aclose()


async def test_items_whose_time_has_passed_have_no_holder(process: Start, redis_client: Redis) -> None:
    services, _ = process()
    await make(services)
    await register(services, *ITEMS[:30])
    own = (await CurriculumStore(services.connection).existing(RUN, NAME)).curriculum_id
    for count in (7, 5):
        assert len(keys_of(await sample(services, count))) == count
        holders = await redis_client.hlen(KEYS.curriculum_part(own, "holders"))  # type: ignore[misc]
        assert (await redis_client.zcard(KEYS.curriculum_part(own, "in_flight")), holders) == (count, count)
        await redis_client.hincrby(KEYS.run, "clock_ms", 10_000_000)  # type: ignore[misc]


async def test_a_strategy_is_switched_while_it_runs_and_the_estimates_stay(process: Start, redis_client: Redis) -> None:
    services, _ = process()
    await make(services, in_flight_ttl_s=0.0)
    await observe(services, {key: [n / 40] for n, key in enumerate(ITEMS)})
    own = (await CurriculumStore(services.connection).existing(RUN, NAME)).curriculum_id
    before = await contents(redis_client, own)
    for strategy in get_args(CurriculumStrategy):
        facts = await services.curriculum.administration.configure(
            RUN, NAME, {"strategy": strategy, "n_bins": 7, "total_steps": 10, "form": "cdf"}, make=False
        )
        assert facts.view.settings.strategy is strategy
        assert keys_of(await sample(services, 3, step=9)), strategy
    after = await contents(redis_client, own)
    assert {part: now for part, now in after.items() if part != "drawn"} == {
        part: then for part, then in before.items() if part != "drawn"
    }


@pytest.mark.parametrize("strategy", get_args(CurriculumStrategy))
async def test_asking_what_another_strategy_would_do_changes_nothing_byte_for_byte(
    process: Start, redis_client: Redis, strategy: CurriculumStrategy
) -> None:
    services, _ = process()
    await make(services, total_steps=100)
    await register(services, "x", "y", category="algebra")
    await observe(services, {key: [n / 40] for n, key in enumerate(ITEMS)})
    await sample(services, 5)
    before, clock = await dump(redis_client), await redis_client.hgetall(KEYS.run)  # type: ignore[misc]
    changes = {"strategy": strategy, "arms": "categories"}
    found = await services.curriculum.comparisons.compare(RUN, NAME, changes, 8, 50)
    assert (await dump(redis_client), await redis_client.hgetall(KEYS.run)) == (before, clock)  # type: ignore[misc]
    assert found.current.strategy == "uniform"
    assert found.alternative.strategy is strategy
    for side in (found.current, found.alternative):
        assert sum(side.bins) == pytest.approx(1)
        assert len({each.item.key for each in side.items}) == len(side.items) == 8


async def test_what_would_be_sampled_is_what_is_sampled(process: Start) -> None:
    services, _ = process()
    await make(services, strategy="learnability", in_flight_ttl_s=0.0)
    await observe(services, {key: [n % 2, 1.0] for n, key in enumerate(ITEMS)})
    predicted = (await services.curriculum.comparisons.compare(RUN, NAME, {}, 12, 0)).current
    found = await sample(services, 12)
    assert keys_of(found)[:12] == [each.item.key for each in predicted.items]
    assert [each.probability for each in found.items] == [each.probability for each in predicted.items]


async def test_metrics_are_right_although_items_are_sampled_while_they_are_read(process: Start, redis_url: str) -> None:
    """Another sample makes further ages possible. They were not counted."""
    services, _ = process()
    await make(services, strategy="plr")
    await observe(services, {key: [n / 40, 1.0] for n, key in enumerate(ITEMS)})
    for _ in range(2):
        await observe(services, {key: [0.5] for key in keys_of(await sample(services, 1))})
    expected = await services.curriculum.administration.metrics(RUN, NAME, None, None)

    class Meanwhile(RedisClient):
        async def run(self, command: Command) -> Any:
            if name_of(command) == "count_curriculum":
                await sample(services, 1)
            return await super().run(command)

    connection = Meanwhile(redis_url, 5.0)
    reading = build_services(ServiceSettings(redis_url=SecretStr(redis_url)), connection, "tested")
    found = await reading.curriculum.administration.metrics(RUN, NAME, None, None)
    assert found == pytest.approx(expected | {"curriculum/in_flight": 1.0}, rel=0.01)
    await connection.aclose()


async def test_a_sample_with_a_seed_is_reproducible_and_leaves_the_generator_alone(process: Start) -> None:
    services, _ = process()
    await make(services, in_flight_ttl_s=0.0)
    await register(services, *ITEMS)
    seeded = [keys_of(await sample(services, 5, seed=seed)) for seed in (7, 7, 8)]
    assert seeded[0] == seeded[1] != seeded[2]
    predicted = (await services.curriculum.comparisons.compare(RUN, NAME, {}, 5, 0)).current
    assert keys_of(await sample(services, 5)) == [each.item.key for each in predicted.items]


async def test_a_place_of_a_category_is_one_of_its_own(process: Start) -> None:
    services, _ = process()
    await make(services)
    for category, keys in (("x", ITEMS[:2]), ("y", ITEMS[2:5]), (None, ITEMS[5:6])):
        await register(services, *keys, category=category)
    view = await CurriculumStore(services.connection).existing(RUN, NAME)
    places = [Place(ItemIndex.CATEGORY, rank, category) for category in range(3) for rank in range(3)]
    found = await services.curriculum.items._items.look(view, places)
    keys = [None if item is None else item.key for item in found]
    assert keys == [ITEMS[5], None, None, ITEMS[0], ITEMS[1], None, *ITEMS[2:5]]


async def test_bins_alone_are_drawn_by_their_law_and_nothing_is_handed_out(process: Start) -> None:
    services, _ = process()
    await make(services, strategy="easy_first", n_bins=4, total_steps=20)
    await observe(services, {key: [n / 40] for n, key in enumerate(ITEMS)})
    request = CurriculumSampleRequest(4000, step=0, total_steps=10)
    found = await services.curriculum.samples.bins(RUN, NAME, request)
    expected = np.exp(-2 * np.arange(4) / 3)
    shares = np.bincount(found.bins, minlength=4) / 4000
    assert shares == pytest.approx(expected / expected.sum(), abs=0.03)
    assert (found.items, found.in_flight) == ((), 0)


async def test_items_are_listed_page_by_page_and_each_bin_has_its_own(process: Start) -> None:
    services, _ = process()
    await make(services, n_bins=5)
    await register(services, *(f"unseen{n}" for n in range(7)))
    await register(services, "prior_only", prior=2.0)
    await observe(services, {key: [n / 40] for n, key in enumerate(ITEMS)})
    for descending in (False, True):
        listed: list[str] = []
        cursor = None
        while True:
            page = await services.curriculum.items.page(RUN, NAME, limit=9, cursor=cursor, descending=descending)
            listed += [each.stored.key for each in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        by_mean_reward = [*ITEMS, "prior_only"]
        unseen = [f"unseen{n}" for n in range(7)]
        assert listed == (by_mean_reward[::-1] + unseen[::-1] if descending else by_mean_reward + unseen)
    facts = await services.curriculum.administration.facts(RUN, NAME)
    assert sorted(facts.bins) == [8, 8, 8, 9, 15]
    for each in range(5):
        page = await services.curriculum.items.page(RUN, NAME, limit=100, bin_=each)
        assert {item.bin for item in page.items} == {each}
        assert len(page.items) == facts.bins[each]


async def test_a_deleted_item_is_gone_from_everywhere(process: Start, redis_client: Redis) -> None:
    services, _ = process()
    await make(services)
    own = (await CurriculumStore(services.connection).existing(RUN, NAME)).curriculum_id
    for key in ("seen", "prior_only", "unseen"):
        before = await contents(redis_client, own)
        await register(services, key, prior=0.25 if key == "prior_only" else None)
        if key == "seen":
            await observe(services, {key: [0.3]})
        await sample(services, 5)
        await services.curriculum.items.delete(RUN, NAME, key)
        after = await contents(redis_client, own)
        assert {part: value for part, value in after.items() if part != "arms"} == {
            part: value for part, value in before.items() if part != "arms"
        }
        assert await redis_client.exists(*(KEYS.curriculum_part(own, part) for part in ("in_flight", "holders"))) == 0
        assert (await services.curriculum.administration.facts(RUN, NAME)).census.reward_sum == 0
        with pytest.raises(ItemNotFound):
            await services.curriculum.items.delete(RUN, NAME, key)


async def test_curricula_end_with_their_run_and_no_key_is_left(process: Start, redis_client: Redis) -> None:
    services, _ = process()
    for reset in (True, False):
        await make(services)
        await services.curriculum.administration.configure(RUN, "other", {}, make=True)
        await observe(services, {"a": [1.0]})
        await sample(services, 1)
        if reset:
            await RunStore(services.connection, TTL_MS).reset(RUN, "token")
            assert not [key async for key in redis_client.scan_iter("*curricul*")]
        else:
            await services.runs.administration.delete(RUN)
            assert await keys_of_runs(redis_client) == []


async def test_a_curriculum_that_is_made_while_its_run_is_reset_goes_with_it(
    process: Start, redis_client: Redis, redis_url: str
) -> None:
    services, _ = process()
    await make(services)

    class Meanwhile(RedisClient):
        made = 0

        async def run(self, command: Command) -> Any:
            if name_of(command) == "reset_run" and self.made < 1:
                self.made += 1
                await services.curriculum.administration.configure(RUN, "late", {}, make=True)
            return await super().run(command)

    connection = Meanwhile(redis_url, 5.0)
    await RunStore(connection, TTL_MS).reset(RUN, "token")
    assert connection.made == 1
    assert not [key async for key in redis_client.scan_iter("*curricul*")]
    await connection.aclose()


async def test_a_removed_curriculum_leaves_no_key_and_what_comes_late_for_it_makes_none(
    process: Start, redis_client: Redis
) -> None:
    services, _ = process()
    await make(services)
    before = set(await keys_of_runs(redis_client))
    late = await CurriculumStore(services.connection).existing(RUN, NAME)
    await observe(services, {"a": [1.0]})
    await services.curriculum.administration.delete(RUN, NAME)
    items = services.curriculum.items._items
    assert await items.register(late, [[ItemWrite("b")]]) == [("gone", 0)]
    assert await items.observe(late, "request", [], 5) == "gone"
    assert await items.take(late, SampleId(1, "sample"), 1, ["a"], ()) is None
    assert set(await keys_of_runs(redis_client)) <= before
    with pytest.raises(CurriculumNotFound):
        await sample(services, 1)


async def test_a_name_that_stands_for_nothing_is_that_of_none(process: Start, redis_client: Redis) -> None:
    """As if somebody had deleted its keys by hand."""
    services, _ = process()
    await make(services)
    await redis_client.hset(KEYS.curricula, "ghost", "nothing")  # type: ignore[misc]
    with pytest.raises(CurriculumNotFound):
        await services.curriculum.administration.facts(RUN, "ghost")
    assert [facts.view.name for facts in await services.curriculum.administration.all(RUN)] == [NAME]


async def test_a_run_has_so_many_curricula_and_no_more(process: Start) -> None:
    services, _ = process()
    with pytest.raises(RunNotFound):
        await services.curriculum.administration.configure(RUN, NAME, {}, make=True)
    await make(services)
    for number in range(1, MAX_CURRICULA):
        await services.curriculum.administration.configure(RUN, f"c{number}", {}, make=True)
    with pytest.raises(InvalidField, match="64 curricula"):
        await services.curriculum.administration.configure(RUN, "one more", {}, make=True)
    await services.curriculum.administration.delete(RUN, "c1")
    await services.curriculum.administration.configure(RUN, "one more", {}, make=True)


async def test_settings_that_do_not_fit_together_are_refused_and_nothing_changes(process: Start) -> None:
    services, _ = process()
    await make(services, hard_threshold=0.5)
    for changes in (
        {"easy_threshold": 0.4},
        {"reward_max": -1.0},
        {"hard_weight": 0.0, "normal_weight": 0.0, "easy_weight": 0.0},
    ):
        with pytest.raises(InvalidField) as refused:
            await services.curriculum.administration.configure(RUN, NAME, changes, make=False)
        assert refused.value.location[0] in changes or refused.value.location == ("normal_weight",)
    assert (await CurriculumStore(services.connection).existing(RUN, NAME)).settings.easy_threshold == 0.8


async def test_the_arm_of_a_bandit_learns_from_its_items_rewards(process: Start) -> None:
    services, _ = process()
    await make(services, strategy="bandit", arms="categories", arm_alpha=0.5, temperature=0.05)
    await register(services, *ITEMS[:20], category="hopeless")
    await register(services, *ITEMS[20:], category="informative")
    await observe(services, {key: [0.0, 0.0] if n < 20 else [0.0, 1.0] for n, key in enumerate(ITEMS)})
    found = await sample(services, 10)
    assert all(key in ITEMS[20:] for key in keys_of(found))
    census = (await services.curriculum.administration.facts(RUN, NAME)).census
    assert census.counts.arms["category:hopeless"] == 0
    assert census.counts.arms["category:informative"] == pytest.approx(0.5, abs=1e-5)


async def test_a_category_without_items_makes_room_for_another(process: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.store.curriculum.items.MAX_CATEGORIES", 2)
    services, _ = process()
    await make(services, strategy="bandit", arms="categories")
    await register(services, "a", category="first")
    await register(services, "b", category="second")
    await observe(services, {"a": [1.0, 0.0], "b": [1.0, 1.0]})
    with pytest.raises(InvalidField):
        await register(services, "c", category="third")
    await services.curriculum.items.delete(RUN, NAME, "a")

    await register(services, "c", category="third")

    counts = (await services.curriculum.administration.facts(RUN, NAME)).census.counts
    assert counts.categories == {"second": 1, "third": 1}
    assert counts.arms.keys() == {"category:second"}, "the arm of a former category is not that of the new one"
