"""The history of a run is what its processes counted, at every resolution."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.history.resolution import KEPT, MOST_CELLS, AskedRange, fresh_s, until_next_write_s
from app.core.history.series import MOST_CHARTED_ENVIRONMENTS, OTHERS, Facts, HistorySpan, Tally
from app.core.history.wanted import WantedHistory
from app.services.batches.request import BatchRequest
from app.services.history.recorder import HistoryRecorder
from app.services.history.sampling import HistorySampler
from app.services.history.writer import HistoryWriter
from app.services.stores import Stores
from app.store.curriculum.entries import ItemWrite
from app.store.history.codec import encode_span
from app.store.history.store import Growth, HistoryStore
from app.store.redis.keys import RunKeys
from app.store.server.embedded import EmbeddedRedis
from lachesis.wire.criteria import GroupCriteria
from lachesis.wire.errors import InvalidField
from lachesis.wire.filters import ZeroVarianceFilter
from tests.core.views import TTL_MS
from tests.services.conftest import RUN, Process, join
from tests.services.history.history_runs import group, keep, make_run, read, sampler_of, total
from tests.waiting import wait_until

KEYS = RunKeys(RUN)


def latest(series: list[float | None]) -> float | None:
    return [value for value in series if value is not None][-1]


async def move_back(redis: Redis, step_s: int, by_s: int) -> None:
    """Let everything in a stream have happened earlier."""
    key = KEYS.series(step_s)
    entries = await redis.xrange(key)
    await redis.delete(key)
    for name, fields in entries:
        milliseconds, number = name.decode().split("-")
        await redis.xadd(key, fields, f"{int(milliseconds) - 1000 * by_s}-{number}")


async def test_what_all_processes_count_adds_up(process: Callable[..., Process]) -> None:
    (one, _), (two, _) = process(), process()
    math = await make_run(one, filter_zero_variance=ZeroVarianceFilter())
    await one.groups.native.submit(RUN, [group("a", math, 0.0, 1.0), group("b", math, 0.0, 0.5, version=None)])
    await two.groups.native.submit(RUN, [group("c", math, 1.0, 1.0), group("d", None, 0.0, 1.0, tokens=100)])
    assert [one.repeated for one in await two.groups.native.submit(RUN, [group("a", math, 0.0, 1.0)])] == [True]
    await one.runs.administration.set_policy_version(RUN, 3)
    assert (await two.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))).batch is not None
    await keep(one)
    await keep(two, maintains=False)

    found = await read(one)
    assert (found.shown.step_s, found.shown.points) in {(10, 361), (60, 61), (60, 62)}
    of_math, others = found.environments["math"], found.environments[OTHERS]
    assert [total(of_math[f"{what}_in"]) for what in ("groups", "sequences", "tokens", "bytes")] == [3, 6, 18, 3]
    assert [total(of_math[f"{what}_out"]) for what in ("groups", "sequences", "tokens", "bytes")] == [2, 4, 12, 2]
    assert (total(others["tokens_in"]), total(others["groups_out"])) == (100, 0)
    assert of_math["dropped"].keys() == {"zero_variance"}
    assert total(of_math["dropped"]["zero_variance"]) == 1
    assert latest(of_math["reward_in"]["mean"]) == pytest.approx((0.5 + 0.25 + 1) / 3, rel=1e-5)
    assert latest(of_math["reward_out"]["p90"]) == pytest.approx(0.25, rel=0.01)
    assert latest(of_math["length_out"]["p50"]) == pytest.approx(3, rel=0.01)
    assert latest(of_math["staleness_out"]["p50"]) == pytest.approx(3, rel=0.01), "of the one that names a version"
    assert latest(of_math["share_got"]) == 1
    assert latest(of_math["share_promised"]) == 0.25
    assert (latest(found.run["step"]), latest(found.run["policy_version"]), total(found.run["batches"])) == (1, 3, 1)
    assert [total(found.run[f"tokens_{way}"]) for way in ("in", "out")] == [118, 12]
    assert total(found.run["dropped"]["zero_variance"]) == 1
    assert list((await read(two, "math")).environments) == ["math"]
    assert (await read(two, "no such name")).environments == {}


async def test_who_looks_sees_the_present_and_spans_grow_in_place(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """However often somebody looks, each process has one entry in ten seconds, and nothing counts twice."""
    (one, _), (two, _) = process(), process()
    math = await make_run(one, filter_zero_variance=ZeroVarianceFilter())
    assert await one.history.writer.due({RUN: False}) == []
    began_s = (await redis_client.time())[0]
    for n in range(12):
        some = [group(f"g{n}", math, 0.0, float(n + 1)), group(f"same{n}", math, 1.0, 1.0)]
        await (two if n % 3 == 2 else one).groups.native.submit(RUN, some)
        await keep(two, maintains=False)
        await keep(one)
        found = await read(one)
        assert total(found.environments["math"]["groups_in"]) == 2 * n + 2
        assert total(found.run["dropped"]["zero_variance"]) == n + 1
    spans = (await redis_client.time())[0] // 10 - began_s // 10 + 1
    entries = await redis_client.xlen(KEYS.series(10))
    assert entries <= 2 * spans
    await one.groups.native.submit(RUN, [group("later", math, 0.0, 1.0)])
    await keep(one, maintains=False)
    await move_back(redis_client, 10, 600)
    await one.groups.native.submit(RUN, [group("last", math, 0.0, 1.0)])
    await keep(one)
    assert await redis_client.xlen(KEYS.series(10)) > 0, "an entry that is gone is not replaced"
    assert total((await read(two)).environments["math"]["groups_in"]) == 26


async def test_other_processes_write_while_somebody_looks(process: Callable[..., Process]) -> None:
    (one, _), (two, _) = process(), process()
    math = await make_run(one)
    await two.groups.native.submit(RUN, [group("a", math, 0.0, 1.0)])
    assert await two.history.writer.due({}) == [], "the history has no readers yet"
    assert total((await read(one)).environments.get("math", {}).get("groups_in", [])) == 0
    assert await two.history.writer.due({}) == [RUN]
    await keep(two, maintains=False)
    assert total((await read(one)).environments["math"]["groups_in"]) == 1
    await one.groups.native.submit(RUN, [group("b", math, 0.0, 1.0)])
    assert total((await read(one)).environments["math"]["groups_in"]) in (1, 2)

    async def is_there() -> bool:
        return total((await read(one)).environments["math"]["groups_in"]) == 2

    await wait_until(is_there)


async def test_a_watched_run_of_many_environments_is_written_less_often(process: Callable[..., Process]) -> None:
    services, _ = process()
    await make_run(services)
    many = [(await join(services, f"e{n}")).environment for n in range(100)]
    await read(services)
    while True:  # a busy machine may be too slow to look while what was written is fresh
        began_s = time.monotonic()
        await services.groups.native.submit(RUN, [group(f"{began_s} {one}", one, 0.0, 1.0) for one in many])
        await keep(services)
        kept_s = time.monotonic()
        await wait_until(lambda kept_s=kept_s: time.monotonic() > kept_s + fresh_s(1))
        await read(services)
        due = await services.history.writer.due({RUN: False})
        if time.monotonic() < began_s + fresh_s(100):
            break
    assert due == []
    assert services.history.writer.counted() == []


async def test_a_history_says_when_there_is_more(process: Callable[..., Process]) -> None:
    """The clock of the process stands still until the test moves it."""
    services, _ = process()
    await make_run(services)
    now_s, stores = [100.0], Stores.on(services.connection, TTL_MS)
    sampler = sampler_of(services, stores)
    writer = HistoryWriter(stores.histories, HistoryRecorder(), sampler, clock=lambda: now_s[0])
    assert writer.next_in_s(RUN) == 0
    await writer.write(RUN, maintained=True)
    assert writer.next_in_s(RUN) == 0, "with few environments, at once"
    for n in range(99):
        await join(services, f"e{n}")
    await writer.write(RUN, maintained=True)
    assert writer.next_in_s(RUN) == fresh_s(1 + 99) == 2
    now_s[0] += 0.5
    assert writer.next_in_s(RUN) == 2
    now_s[0] += 1
    assert writer.next_in_s(RUN) == 0


async def test_time_is_counted_by_what_blocks_the_run(process: Callable[..., Process]) -> None:
    services, _ = process()
    math = await make_run(services)
    await keep(services)
    await keep(services)
    await services.groups.native.submit(RUN, [group("a", math, 0.0, 1.0), group("b", math, 0.0, 1.0)])
    assert (await services.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))).batch is not None
    await keep(services)
    found = (await read(services)).run
    blocked = found["blocked_s"]
    assert 0 < (latest(found["trainer_idle_share"]) or 0) < 1
    assert total(blocked["waiting_for_data"]) > 0
    assert total(blocked["trainer_holds_batch"]) > 0
    said = [one for one in found["blocked_sentence"] if one is not None]
    assert any(
        "Last reason: a batch needs 4 sequences; the queue has 0 that fit; environment 0 (math) needs" in one
        for one in said
    )
    assert {cause for cause, seconds in blocked.items() if total(seconds)} == {
        "waiting_for_data",
        "trainer_holds_batch",
    }


async def test_the_items_of_curricula_are_counted_by_mean_reward(process: Callable[..., Process]) -> None:
    services, _ = process()
    await make_run(services)
    await keep(services)
    assert (await read(services)).run["curricula"] == {}
    curricula = services.curriculum
    await curricula.administration.configure(RUN, "gsm8k", {"reward_max": 2.0}, make=True)
    await curricula.items.register(RUN, "gsm8k", [ItemWrite("a"), ItemWrite("b", prior=0.5), ItemWrite("c")])
    await curricula.observations.observe(RUN, "gsm8k", [("c", [5.0])], None)
    await keep(services)
    series = (await read(services)).run["curricula"]["gsm8k"]
    assert [latest(one) for one in series["items_by_reward"]] == [0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert latest(series["unseen"]) == 1
    await curricula.administration.delete(RUN, "gsm8k")
    await keep(services)
    assert latest((await read(services)).run["curricula"]["gsm8k"]["unseen"]) == 1


async def test_drops_count_once_if_several_processes_maintain_the_run(process: Callable[..., Process]) -> None:
    (one, _), (two, _) = process(), process()
    math = await make_run(one)
    await one.groups.native.submit(RUN, [group(f"g{n}", math if n % 2 else None, 0.0, 1.0) for n in range(6)])
    await one.groups.deletion.delete(RUN, "g1")
    await keep(one)
    await keep(two, maintains=False)
    await one.groups.deletion.delete(RUN, "g3")
    await keep(two)
    await keep(two)
    await one.groups.deletion.delete_matching(RUN, GroupCriteria(environment="none"), limit=10)
    await keep(one)
    environments = (await read(one)).environments
    assert [total(environments[name]["dropped"]["deleted"]) for name in ("math", OTHERS)] == [2, 3]


async def test_a_process_that_is_paused_after_its_look_counts_no_drop_again(
    process: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one maintains the run in the meantime. What the first one has counted itself is kept."""
    (one, _), (two, _) = process(), process()
    look, paused = HistorySampler.sample, list[str]()

    async def sample(self: HistorySampler, run: str, *, replay: bool) -> tuple[HistorySpan, Growth]:
        found = await look(self, run, replay=replay)
        if not paused:
            paused.append(run)
            await keep(two)
        return found

    monkeypatch.setattr(HistorySampler, "sample", sample)
    math = await make_run(one)
    await one.groups.native.submit(RUN, [group("a", math, 0.0, 1.0), group("b", math, 0.0, 1.0)])
    await one.groups.deletion.delete(RUN, "a")
    await keep(one)
    await keep(two)
    found = (await read(one)).environments["math"]
    assert (total(found["dropped"]["deleted"]), total(found["groups_in"])) == (1, 2)


@pytest.mark.parametrize("apart_s", [40, 61, 299, 450, 900])
async def test_coarser_spans_are_sums_of_finer_ones(
    process: Callable[..., Process], redis_client: Redis, apart_s: int
) -> None:
    """Ten seconds become a minute, and minutes a quarter of an hour, by whichever process, once."""
    (one, _), (two, _) = process(), process()
    math = await make_run(one)
    names = iter(range(1000))

    async def happen(groups: int) -> None:
        some = [group(f"g{next(names)}", math, 0.0, float(groups)) for _ in range(groups)]
        await one.groups.native.submit(RUN, some)
        await keep(one, maintains=False)

    for groups in (1, 2, 3):
        await happen(groups)
        for resolution in KEPT:
            await move_back(redis_client, resolution.step_s, apart_s)
    await keep(two)
    await keep(one)
    assert await redis_client.xlen(KEYS.series(60)) >= 1
    for ago_s in (3000, 7000, 90_000):
        found = (await read(two, ago_s=ago_s)).environments["math"]
        assert total(found["groups_in"]) == 6
        assert total(found["tokens_in"]) == 36
    for resolution in KEPT:
        await move_back(redis_client, resolution.step_s, 6 * 3600)  # a multiple of all steps: spans stay spans
    one.history.writer.keep_only([])
    two.history.writer.keep_only([])
    await happen(4)
    await keep(one)
    await keep(two)
    assert await redis_client.xlen(KEYS.series(900)) >= 1
    assert await redis_client.xlen(KEYS.series(10)) <= 3, "what is older than an hour went"
    for ago_s in (30_000, 90_000, 29 * 86_400):
        found = (await read(one, ago_s=ago_s)).environments["math"]
        assert total(found["groups_in"]) == 10
        assert max(value for value in found["reward_in"]["p90"] if value is not None) == pytest.approx(2, rel=0.02)
    assert total((await read(one, ago_s=600)).environments["math"]["groups_in"]) == 4


async def test_what_was_written_before_a_long_stop_is_added_up_after_it(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """It is older than minutes are kept."""
    services, _ = process()
    await make_run(services)
    begin_s = ((await redis_client.time())[0] - 2 * 86_400) // 900 * 900
    text = encode_span(HistorySpan(environments={"math": Facts({"groups_in": 1})}))
    for step_s, after_s in ((60, 0), (60, 60), (10, 120), (10, 130), (10, 200)):
        await redis_client.xadd(KEYS.series(step_s), {"facts": text}, f"{(begin_s + after_s) * 1000}-0")
    await keep(services)
    for step_s in (900, 6 * 3600):
        asked = AskedRange(begin_s - 6 * 3600, begin_s + 6 * 3600, step_s)
        found = await services.history.reading.series(RUN, asked)
        assert total(found.environments["math"]["groups_in"]) == 5
    assert await redis_client.xlen(KEYS.series(60)) == 0, "its spans are added up"


async def test_a_young_history_is_shown_from_its_begin(process: Callable[..., Process], redis_client: Redis) -> None:
    (services, _), (other, _) = process(), process()
    await make_run(services)
    reading = services.history.reading

    async def begin_ago_s() -> float:
        (now_s, _) = await services.connection.call("TIME")
        shown = (await reading.series(RUN)).shown
        of_histograms, _ = await reading.histograms(RUN, "reward")
        assert of_histograms.from_s - shown.from_s in (0, 10)
        return int(now_s) - shown.from_s

    assert await begin_ago_s() == pytest.approx(120, abs=15)
    await keep(services)
    for ago_s, begin_s in ((60, 120), (600, 600), (3000, 3000), (4000, 3600)):
        await redis_client.delete(KEYS.series(10))
        await services.history.writer.write(RUN, maintained=True)
        await move_back(redis_client, 10, ago_s)
        assert await begin_ago_s() == pytest.approx(begin_s, abs=15)
    await keep(other)  # it adds the old entry up, and drops it
    assert await redis_client.xlen(KEYS.series(60)) == 1
    assert await begin_ago_s() == pytest.approx(3600, abs=15)


async def test_histograms_compare_what_came_with_what_was_trained_on(process: Callable[..., Process]) -> None:
    services, _ = process()
    math = await make_run(services, filter_zero_variance=ZeroVarianceFilter())
    some = [group(f"g{n}", math, float(n), float(n + n % 2)) for n in range(4)]
    await services.groups.native.submit(RUN, some)
    assert (await services.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))).batch is not None
    await keep(services)
    (now_s, _) = await services.connection.call("TIME")
    asked = AskedRange(int(now_s) - 600, int(now_s) + 1)
    of_reward = await services.history.reading.histograms(RUN, "reward", asked)
    shown, found = of_reward
    assert shown.points == len(found.generated) == len(found.trained)
    assert sum(map(sum, found.generated)) == 4
    assert sum(map(sum, found.trained)) == 2
    assert found.edges[0] == 0
    _, of_waiting = await services.history.reading.histograms(RUN, "waiting", environment="math")
    assert of_waiting.generated == []


async def test_who_follows_a_history_reads_what_a_new_reader_reads(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    """Closed spans are kept, so new ones must come in, and those of another history must not stay."""
    (following, _), (settled, _) = process(), process()
    await make_run(following)
    now_s = int((await redis_client.time())[0])
    begin_s = (now_s - 1800) // 60 * 60
    key = KEYS.series(60)

    async def add(minute: int, sequences: int) -> None:
        tally = Tally()
        tally.note("math", {"sequences_in": sequences}, {"reward_in": [sequences / 10], "length_in": [5.0]})
        await redis_client.xadd(key, {"facts": encode_span(tally.close())}, f"{(begin_s + 60 * minute) * 1000}-0")

    async def found(services: Services, first: int = 0) -> list[Any]:
        reading, asked = services.history.reading, AskedRange(begin_s + 60 * first, begin_s + 1200, 60)
        shares = await reading.shares(RUN, "sequences", asked)
        values = [await reading.histograms(RUN, value, asked, "math") for value in ("reward", "length")]
        return [shares, *values, await reading.series(RUN, asked, WantedHistory(("step",), ("reward_in",), "math"))]

    for minute in range(4):
        await add(minute, minute + 1)
    before = await found(following)
    assert before[0][1].generated == 1 + 2 + 3 + 4
    assert await found(following) == before
    await add(4, 9)
    after = await found(following)
    assert after[0][1].generated == 1 + 2 + 3 + 4 + 9
    assert after == await found(settled)
    assert (await found(following, 2))[0][1].generated == 3 + 4 + 9
    assert await found(following, 1) == await found(process()[0], 1), "it begins before what was read last"
    await redis_client.delete(key)
    for minute in range(5):
        await add(minute, 100)
    other = await found(following)
    assert other[0][1].generated == 500
    assert other == await found(process()[0])


async def test_absurd_rewards_and_ranges_do_no_harm(process: Callable[..., Process]) -> None:
    services, _ = process()
    math = await make_run(services)
    await services.groups.native.submit(RUN, [group("a", math, 1e308, 1e308), group("b", math, float("nan"), -1e308)])
    assert (await services.batches.dispatch.take(RUN, BatchRequest("", 60, "trainer"))).batch is not None
    await keep(services)
    reward = (await read(services)).environments["math"]["reward_in"]
    assert latest(reward["p50"]) == 1e18
    reading = services.history.reading
    with pytest.raises(InvalidField, match="before"):
        await reading.series(RUN, AskedRange(100, 50))
    for from_s, to_s in ((0, 2**53), (2**53 - 1, 2**53), (0, 1)):
        found = await reading.series(RUN, AskedRange(from_s, to_s))
        assert found.shown.points <= 3000
    for from_s, to_s in ((2**53 - 1, 2**53), (0, 1)):
        assert (await reading.series(RUN, AskedRange(from_s, to_s))).shown.times_s == []
        shown, none = await reading.histograms(RUN, "reward", AskedRange(from_s, to_s))
        assert (shown.times_s, none.edges, none.generated) == ([], [], [])


async def test_many_environments_have_bounded_answers(process: Callable[..., Process], redis_client: Redis) -> None:
    """Of environments that have left, only the spans tell."""
    services, _ = process()
    await make_run(services)
    for first in (0, 200, 301):
        some = {f"e{n}": Facts({"groups_in": 1, "sequences_in": n}) for n in range(first, first + 200)}
        assert await HistoryStore(services.connection).append(RUN, HistorySpan(environments=some))
        await move_back(redis_client, KEPT[0].step_s, 120)
    found = await read(services)
    assert len(found.environments) == MOST_CHARTED_ENVIRONMENTS + 1
    assert found.shown.points * len(found.environments) <= MOST_CELLS
    assert sum(total(series["groups_in"]) for series in found.environments.values()) == 600
    assert total((await read(services, "e0")).environments["e0"]["groups_in"]) == 1
    shown, _ = await services.history.reading.histograms(RUN, "reward")
    assert shown.points * len(found.environments) <= MOST_CELLS


async def test_writes_keep_step_with_the_spans_of_redis(process: Callable[..., Process]) -> None:
    services, _ = process()
    stores, clock_s = Stores.on(services.connection, TTL_MS), 0.0
    histories = stores.histories
    sampler = sampler_of(services, stores)
    writer = HistoryWriter(histories, HistoryRecorder(), sampler, clock=lambda: clock_s)
    assert await writer.due({RUN: False}) == []
    before_s, after_s = 0.0, 10.0
    while before_s // 10 != after_s // 10:  # a span ended in between
        clock_s += 100.0
        before_s = await histories.now_s()
        assert await writer.due({RUN: False}) == [RUN]
        after_s = await histories.now_s()
    written_s = clock_s
    clock_s = written_s + until_next_write_s(after_s) - 0.01
    assert await writer.due({RUN: False}) == []
    clock_s = written_s + until_next_write_s(before_s) + 0.01
    assert await writer.due({RUN: False}) == [RUN]


async def test_a_process_that_ends_writes_what_it_has_counted(process: Callable[..., Process]) -> None:
    (one, maintenance), (two, _) = process(), process()
    math = await make_run(one)
    await one.groups.native.submit(RUN, [group("a", math, 0.0, 1.0)])
    maintenance.start()
    await maintenance.stop()
    assert total((await read(two)).environments["math"]["groups_in"]) == 1


async def test_a_run_in_which_nothing_happens_is_left_alone(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    math = await make_run(services)
    await services.groups.native.submit(RUN, [group("a", math, 0.0, 1.0)])
    assert services.history.writer.counted() == [RUN]
    await keep(services)
    assert services.history.writer.counted() == []
    assert await redis_client.xlen(KEYS.series(10)) == 1


async def test_spans_are_added_up_once_redis_has_memory_again(
    process: Callable[..., Process], own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    services, _ = process(own_server.url)
    await make_run(services)
    now_s, _ = await own_redis.time()
    span = HistorySpan(environments={"math": Facts({"groups_in": 3})})
    await own_redis.xadd(KEYS.series(10), {"facts": encode_span(span)}, f"{now_s - 600}000-0")
    await own_redis.config_set("maxmemory", 1)
    await keep(services)
    assert not await own_redis.xlen(KEYS.series(60))
    await own_redis.config_set("maxmemory", 0)
    await keep(services)
    assert await own_redis.xlen(KEYS.series(60)) == 1
