"""Samples whose answers are lost, and items that are given back."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
from redis.asyncio import Redis

from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent
from app.core.curriculum.sampling import ItemProbabilities
from app.core.runs.settings import Policy
from app.main import build_services
from app.services.curriculum.sampling import CurriculumSampleRequest, SamplingDistribution
from app.settings import ServiceSettings
from app.store.curriculum import items
from app.store.curriculum.entries import ItemWrite
from app.store.curriculum.store import Census, CurriculumStore
from app.store.redis.client import RedisClient
from app.store.redis.pipeline import Command
from lachesis.wire.curricula import CurriculumSettings, CurriculumStrategy
from tests.script_names import name_of
from tests.services.conftest import RUN, Process, config
from tests.services.curriculum.runs import KEYS, NAME, Twice, keys_of, make, observe, pass_time, register, sample

Start = Callable[..., Process]
ITEMS = [f"item{n:02d}" for n in range(40)]


@pytest.mark.parametrize("strategy", get_args(CurriculumStrategy))
async def test_a_request_that_comes_again_gets_the_same_items_whichever_process_gets_it(
    process: Start, redis_url: str, strategy: CurriculumStrategy
) -> None:
    (one, _), (other, _) = process(), process()
    twice = Twice(redis_url, 5.0)
    third = build_services(ServiceSettings(redis_url=redis_url), twice, "tested")  # type: ignore[arg-type]
    await make(one, strategy=strategy, total_steps=10)
    await register(one, *ITEMS)
    for request in ("a", "b"):
        first, *again = [await sample(each, 12, step=10, request_id=request) for each in (third, other, one, third)]
        assert (len(first.items), first.repeated) == (12, False)
        for each in again:
            assert (set(keys_of(each)), each.sample_id, each.repeated) == (set(keys_of(first)), first.sample_id, True)
            assert each.in_flight == first.in_flight
    assert (await one.curriculum.administration.facts(RUN, NAME)).census.in_flight == 24
    await twice.aclose()


async def test_a_request_repeated_while_it_is_served_takes_over_what_is_drawn(process: Start, redis_url: str) -> None:
    """The first one is broken off by its sender, say, between two of its draws: it takes no more."""
    services, _ = process()
    await make(services)
    await register(services, *ITEMS)
    meanwhile = []

    class Meanwhile(RedisClient):
        async def run(self, command: Command) -> Any:
            if name_of(command) == "take_items" and not meanwhile:
                # Of the draws of a first attempt, only a few are taken.
                found = await super().run(command[: 3 + int(command[2]) + 7 + 3 * 4])
                meanwhile.append(await sample(services, 12, request_id="a"))
                return found
            return await super().run(command)

    connection = Meanwhile(redis_url, 5.0)
    drawing = build_services(ServiceSettings(redis_url=redis_url), connection, "tested")  # type: ignore[arg-type]
    first = await sample(drawing, 12, request_id="a")
    assert len(meanwhile[0].items) == 4
    assert (keys_of(first), first.sample_id) == (keys_of(meanwhile[0]), meanwhile[0].sample_id)
    assert (await services.curriculum.administration.facts(RUN, NAME)).census.in_flight == 4
    await connection.aclose()


async def test_a_repeated_request_returns_items_still_in_flight_or_draws_new_ones(
    process: Start, redis_client: Redis
) -> None:
    services, _ = process()
    await make(services, in_flight_ttl_s=300.0)
    await register(services, *ITEMS)
    first = await sample(services, 3, request_id="a")
    keys = keys_of(first)
    await observe(services, {keys[0]: [1.0]})
    assert keys[0] in keys_of(await sample(services, 38))
    assert set(keys_of(await sample(services, 3, request_id="a"))) == set(keys[1:])
    await pass_time(redis_client, 330)
    taken_by_others = keys_of(await sample(services, 37))
    assert len(taken_by_others) == 37
    again = await sample(services, 3, request_id="a")
    assert (len(again.items), again.repeated) == (3, False)
    assert again.sample_id != first.sample_id
    assert not set(keys_of(again)) & set(taken_by_others)


async def test_a_repeated_request_returns_items_that_would_not_be_drawn_now(process: Start) -> None:
    services, _ = process()
    await make(services, strategy="difficulty_pools")
    await register(services, *ITEMS[:3])
    first = await sample(services, 3, request_id="a")
    await services.curriculum.administration.configure(RUN, NAME, {"normal_weight": 0.0}, make=False)
    again = await sample(services, 3, request_id="a")
    assert (again.repeated, again.sample_id, again.missing) == (True, first.sample_id, None)
    assert sorted(keys_of(again)) == sorted(keys_of(first)) == ITEMS[:3]
    other = await sample(services, 3, request_id="b")
    assert (other.items, other.missing, other.in_flight) == ((), "not_drawn", 3)


async def test_requests_are_remembered_for_a_time_and_so_many(process: Start, redis_client: Redis) -> None:
    services, _ = process()
    await make(services, in_flight_ttl_s=60.0)
    await register(services, *ITEMS)
    own = (await CurriculumStore(services.connection).existing(RUN, NAME)).curriculum_id
    samples, until = (KEYS.curriculum_part(own, part) for part in ("samples", "samples_until"))
    for number in range(5):
        await sample(services, 1, request_id=f"r{number}")
    assert await redis_client.hlen(samples) == await redis_client.zcard(until) == 5  # type: ignore[misc]
    await pass_time(redis_client, 90)
    await sample(services, 1)
    # Its own, by the sample's id:
    assert await redis_client.hlen(samples) == await redis_client.zcard(until) == 1  # type: ignore[misc]
    many = {f"m{number}": 1e15 + number for number in range(10_400)}
    await redis_client.zadd(until, many)
    await redis_client.hset(samples, mapping=dict.fromkeys(many, "{}"))  # type: ignore[misc]
    await sample(services, 1)
    assert await redis_client.zcard(until) == await redis_client.hlen(samples) == 10_001  # type: ignore[misc]
    assert await redis_client.zscore(until, "m400") is not None


async def test_only_its_sample_gives_an_item_back_and_others_may_then_draw_it(process: Start) -> None:
    services, _ = process()
    await make(services)
    await register(services, *ITEMS[:10])
    mine, theirs = await sample(services, 4), await sample(services, 6)

    async def release(sample_id: str, keys: Sequence[str]) -> int:
        return await services.curriculum.samples.release(RUN, NAME, sample_id, keys)

    assert await release(mine.sample_id, [*keys_of(theirs), "nobody"]) == 0
    assert await release("loaded", keys_of(mine)) == 0
    await observe(services, {keys_of(mine)[0]: [1.0]})
    again = await sample(services, 1)
    assert keys_of(again) == keys_of(mine)[:1]
    assert await release(mine.sample_id, keys_of(mine)) == 3, "the one that was observed is somebody else's by now"
    assert await release(mine.sample_id, keys_of(mine)) == 0
    assert set(keys_of(await sample(services, 10))) == set(keys_of(mine)[1:])


async def test_samples_and_releases_at_once_hand_each_item_to_one_at_a_time(process: Start) -> None:
    (one, _), (other, _) = process(), process()
    await make(one)
    await register(one, *ITEMS)
    held: dict[str, str] = {}

    async def worker(number: int) -> None:
        services = (one, other)[number % 2]
        for turn in range(6):
            request = CurriculumSampleRequest(5, request_id=f"{number}.{turn}")
            first = await services.curriculum.samples.sample(RUN, NAME, request)
            again = await services.curriculum.samples.sample(RUN, NAME, request)
            assert set(keys_of(first)) == set(keys_of(again))
            for key in keys_of(first):
                assert held.setdefault(key, first.sample_id) == first.sample_id
            for key in keys_of(first):
                del held[key]
            await services.curriculum.samples.release(RUN, NAME, first.sample_id, keys_of(first))

    await asyncio.gather(*map(worker, range(6)))
    assert (await one.curriculum.administration.facts(RUN, NAME)).census.in_flight == 0


@pytest.mark.parametrize("strategy", ["plr", "thompson"])
async def test_a_large_sample_takes_several_short_commands_and_gets_the_same_items(
    process: Start, redis_url: str, monkeypatch: pytest.MonkeyPatch, strategy: CurriculumStrategy
) -> None:
    """Redis serves other requests between the commands. When most items are in flight, a sample looks up all."""
    services, _ = process()
    sent: list[int] = []

    class Counted(RedisClient):
        async def run(self, command: Command) -> Any:
            if name_of(command) == "take_items":
                sent.append((len(command) - int(command[2]) - 10) // 3)
            return await super().run(command)

    connection = Counted(redis_url, 5.0)
    drawing = build_services(ServiceSettings(redis_url=redis_url), connection, "tested")  # type: ignore[arg-type]
    await services.runs.administration.create(RUN, config(1), Policy())
    found = {}
    for name, at_once in (("short", 5), ("long", 10_000)):
        monkeypatch.setattr(items, "_AT_ONCE", at_once)
        await services.curriculum.administration.configure(RUN, name, {"strategy": strategy}, make=True)
        await services.curriculum.items.register(RUN, name, [ItemWrite(item) for item in ITEMS])
        observed = [(item, [float(number % 2)]) for number, item in enumerate(ITEMS[::2])]
        await services.curriculum.observations.observe(RUN, name, observed, None)
        sent.clear()
        samples = [
            await drawing.curriculum.samples.sample(RUN, name, CurriculumSampleRequest(n, request_id=request_id))
            for n, request_id in ((30, "a"), (8, "b"), (8, "b"))
        ]
        assert [(len(one.items), one.in_flight) for one in samples] == [(30, 30), (8, 38), (8, 38)]
        assert max(sent) <= at_once
        found[name] = [keys_of(one) for one in samples]
    assert found["short"] == found["long"]
    await connection.aclose()


async def test_the_best_candidate_is_drawn_predicted_and_counted_in_its_bin(process: Start) -> None:
    services, _ = process()
    await make(services, strategy="thompson", n_bins=5)
    await register(services, *ITEMS)
    best, *others = ITEMS
    await observe(services, {best: [0.0, 1.0] * 25, **dict.fromkeys(others, [1.0] * 50)})
    predicted = (await services.curriculum.comparisons.compare(RUN, NAME, {}, 1, 0)).current
    assert predicted.bins == pytest.approx((0, 0, 0, 0, 1), abs=0.01)
    assert (await services.curriculum.samples.bins(RUN, NAME, CurriculumSampleRequest(9))).bins == (4,) * 9
    drawn = await sample(services, 1)
    for (item,) in (predicted.items, drawn.items):
        assert (item.item.key, item.probability) == (best, None)
    shown = await services.curriculum.administration.metrics(RUN, NAME, None, None)
    assert not {"curriculum/entropy", "curriculum/bin_0_probability"} & shown.keys()


async def test_a_draw_from_very_many_items_holds_up_no_other_request() -> None:
    """Nearly all probability is on fewer items than wanted, so a draw looks at all of them."""
    few, many = (
        MixtureComponent(ItemIndex.MEAN_REWARD, first, size, probability, "")
        for first, size, probability in ((0, 20, 1 - 1e-9), (20, 200_000, 1e-9))
    )
    census = Census(ItemCounts({}), counter=0, updates=0, reward_sum=0.0, left_out=0, in_flight=0)
    drawing = SamplingDistribution(
        CurriculumSettings(), census, census.counts, (few, many), ItemProbabilities((few, many)), seed=0, counter=0
    )
    served = []

    async def serve() -> None:
        served.append("another request")

    other = asyncio.create_task(serve())
    draws, places = await drawing.places(64, 0)
    assert served
    await other
    assert len({draw.rank for draw in draws}) == len(places) == 64
