"""Histories in Redis: what is added is read again, once, for as long as it is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from app.core.history.resolution import KEPT, LONGEST_S
from app.core.history.series import Facts, HistorySpan
from app.core.history.sketch import Sketch
from app.core.history.wanted import SKETCHES, WantedHistory
from app.store.history import scripts
from app.store.history.codec import decode_span, encode_span
from app.store.history.store import Growth, HistoryStore, parse_span, parse_totals
from app.store.redis.client import RedisClient
from app.store.redis.keys import WATCHED, RunKeys
from lachesis.wire.errors import UnreadableRecord
from tests.store.conftest import RUN, Store

FINE, MINUTE, *_ = KEPT
KEYS = RunKeys(RUN)

names = st.text(max_size=5) | st.sampled_from(SKETCHES)
numbers = st.integers(0, 2**50) | st.floats(-1e18, 1e18)
sketches = st.builds(Sketch.of, st.lists(st.floats(allow_nan=True), min_size=1))
facts = st.builds(
    Facts,
    counts=st.dictionaries(names, numbers),
    means=st.dictionaries(names, st.tuples(numbers, st.integers(0, 100))),
    lasts=st.dictionaries(names, numbers),
    sketches=st.dictionaries(names, sketches.filter(lambda sketch: sketch.count > 0)),
    texts=st.dictionaries(names, st.text(max_size=5)),
)


@given(st.builds(HistorySpan, facts, st.dictionaries(names, facts, max_size=3)))
def test_a_span_is_decoded_as_it_was_encoded(span: HistorySpan) -> None:
    text = encode_span(span)
    assert decode_span(text) == span
    for name in span.environments:
        assert decode_span(text, WantedHistory(environment=name)) == HistorySpan(
            span.run, {name: span.environments[name]}
        )
    assert decode_span(text, WantedHistory(environment="no such name")).environments == {}
    assert decode_span(text, WantedHistory(environments=())) == HistorySpan(span.run)
    some = decode_span(text, WantedHistory(environments=("reward_in", "tokens_in")))
    for name, facts in span.environments.items():
        kept = {one: sketch for one, sketch in facts.sketches.items() if one == "reward_in"}
        assert some.environments[name] == Facts(facts.counts, facts.means, facts.lasts, kept, facts.texts)


def span_of(groups: int) -> HistorySpan:
    return HistorySpan(environments={"math": Facts({"groups_in": groups})})


async def groups_at(history: HistoryStore, resolution: object, from_s: int = 0, to_s: float = 1e12) -> list[float]:
    assert resolution in KEPT
    found = await history.spans(RUN, resolution, from_s, to_s)  # type: ignore[arg-type]
    return [parse_span(RUN, one).environments["math"].counts["groups_in"] for one in found]


@pytest.fixture
def history(connection: RedisClient) -> HistoryStore:
    return HistoryStore(connection)


async def test_what_was_appended_is_read_in_order(store: Store, history: HistoryStore) -> None:
    now_s = await history.now_s()
    for groups in range(250):
        assert await history.append(RUN, span_of(groups))
    assert await groups_at(history, FINE) == list(range(250))
    assert await groups_at(history, FINE, int(now_s) - 10, now_s - 5) == []
    spans = await history.spans(RUN, FINE, int(now_s), now_s + 60)
    assert len(spans) == 250
    assert all(now_s - 1 <= one.time_s <= now_s + 60 for one in spans)


async def test_an_entry_is_replaced_within_its_span_only(
    store: Store, history: HistoryStore, redis_client: Redis
) -> None:
    key = KEYS.series(10)

    async def replaced(by: int, entry: str) -> str | None:
        return await history.append(RUN, span_of(by), None, entry)

    latest = None
    while latest is None:  # a span may end in between
        first = await history.append(RUN, span_of(1))
        assert first is not None
        latest = await replaced(2, first)
    assert (await redis_client.xrevrange(key))[0][0].decode() == latest
    assert (await groups_at(history, FINE))[-1] == 2
    length = await redis_client.xlen(key)
    assert await replaced(3, first) is None, "it is gone"
    assert await redis_client.xlen(key) == length
    await redis_client.delete(key)
    seconds = (await redis_client.time())[0]
    former = (await redis_client.xadd(key, {"facts": b""}, id=f"{(seconds - 20) * 1000}-0")).decode()
    assert await replaced(4, former) is None, "it may have been added up"
    assert [name.decode() for name, _ in await redis_client.xrange(key)] == [former]


async def test_a_repeated_command_adds_nothing(store: Store, connection: RedisClient, redis_client: Redis) -> None:
    """Its first reply may have been lost."""

    async def appended(write: str, replaced: str | None = None) -> str:
        command = scripts.append_history(
            KEYS,
            finest=KEYS.series(10),
            most=100,
            kept_ms=60_000,
            span_ms=10**13,  # no span ends in between
            replaced=replaced,
            facts=write.encode(),
            totals=b"",
            before=b"",
            write=write,
        )
        return str((await connection.run(command)).decode())

    first = await appended("a")
    assert await appended("a") == first
    other = await appended("of another process")
    assert await appended("a") == first
    second = await appended("b", first)
    assert await appended("b", first) == second
    assert await appended("c", first) == "later"
    assert [name.decode() for name, _ in await redis_client.xrange(KEYS.series(10))] == [other, second]


async def test_a_run_that_does_not_exist_or_was_reset_gets_no_history(
    store: Store, history: HistoryStore, redis_client: Redis
) -> None:
    assert await history.append(RUN, span_of(1))
    await store.runs.reset(RUN, "token")
    assert not await redis_client.exists(KEYS.series(10)), "a reset clears the history"
    assert not await history.append(RUN, span_of(2)), "late counts of before the reset"
    assert not await history.append("other", span_of(2))
    assert not await redis_client.exists(KEYS.series(10), RunKeys("other").series(10), RunKeys("other").run)
    assert await history.last_s(RUN, FINE) is None
    assert await history.totals(RUN) == b""


async def test_the_latest_totals_are_found(store: Store, history: HistoryStore) -> None:
    for dropped in (3, 5):
        growth = Growth(await history.totals(RUN), {"math": {"dropped:stale": dropped}})
        assert await history.append(RUN, span_of(1), growth)
    for _ in range(20):
        await history.append(RUN, span_of(1))
    assert parse_totals(RUN, await history.totals(RUN)) == {"math": {"dropped:stale": 5}}


async def test_growth_is_added_once_if_two_processes_have_seen_it(
    store: Store, history: HistoryStore, connection: RedisClient
) -> None:
    async def appended(write: str, before: bytes, totals: bytes, replaced: str | None = None) -> str:
        command = scripts.append_history(
            KEYS,
            finest=KEYS.series(10),
            most=100,
            kept_ms=60_000,
            span_ms=10**13,  # no span ends in between
            replaced=replaced,
            facts=encode_span(span_of(1)),
            totals=totals,
            before=before,
            write=write,
        )
        return str((await connection.run(command)).decode())

    first = await appended("a", b"", b"1")
    assert await appended("a", b"", b"1") == first, "a repeated command"
    assert await appended("b", b"", b"1") == "outdated"
    second = await appended("c", b"1", b"2")
    assert await appended("d", b"1", b"3", first) == "outdated"
    assert await history.totals(RUN) == b"2"
    assert await groups_at(history, FINE) == [1, 1], "the entry to replace is still there"
    replacing = await appended("e", b"2", b"3", second)
    assert await appended("e", b"2", b"3", second) == replacing


async def test_a_span_is_added_once_and_in_the_order_of_time(
    store: Store, history: HistoryStore, redis_client: Redis
) -> None:
    now_s = await history.now_s()
    begin_s = int(now_s) // 60 * 60
    await history.append(RUN, span_of(1))

    async def merge(at_s: int, groups: int) -> bool:
        return await history.merge(RUN, FINE, MINUTE, at_s, span_of(groups), now_s)

    assert await merge(begin_s, 7)
    assert not await merge(begin_s, 8)
    assert not await merge(begin_s - 60, 9)
    assert await merge(begin_s + 60, 10)
    assert await groups_at(history, MINUTE) == [7, 10]
    assert await history.last_s(RUN, MINUTE) == begin_s + 60
    assert await groups_at(history, FINE) == [1], "it may still be shown finely"
    left_ms = await redis_client.pttl(KEYS.series(60))
    assert 0 < left_ms <= LONGEST_S * 1000


async def test_what_is_too_old_goes_once_it_was_added_up(
    store: Store, history: HistoryStore, redis_client: Redis
) -> None:
    now_s = await history.now_s()
    old_s = int(now_s) // 60 * 60 - 7200
    for time_s in (old_s, old_s + 65, int(now_s) - 5):
        await redis_client.xadd(KEYS.series(10), {"facts": encode_span(span_of(time_s))}, f"{time_s}000-0")
    await history.merge(RUN, FINE, MINUTE, old_s, span_of(1), now_s)
    assert len(await groups_at(history, FINE)) == 2, "the second one is as old, but was not added up yet"
    await history.merge(RUN, FINE, MINUTE, old_s + 60, span_of(1), now_s)
    assert await groups_at(history, FINE) == [int(now_s) - 5]


async def test_a_span_that_begins_at_the_end_of_a_range_is_not_in_it(
    history: HistoryStore, redis_client: Redis
) -> None:
    for time_ms in ("59999-7", "60000-0", "119999-0", "120000-0", "120000-1"):
        await redis_client.xadd(KEYS.series(10), {"facts": encode_span(span_of(1))}, time_ms)
    assert [one.time_s for one in await history.spans(RUN, FINE, 60, 120)] == [60, 119]
    assert await history.spans(RUN, FINE, 0, 0) == []


async def test_spans_that_have_not_ended_are_dropped_and_written_again(
    store: Store, history: HistoryStore, redis_client: Redis
) -> None:
    now_s = await history.now_s()
    minute_s = int(now_s) // 60 * 60
    for begin_s in (minute_s - 60, minute_s, minute_s + 86_400):
        await redis_client.xadd(KEYS.series(60), {"facts": encode_span(span_of(begin_s))}, f"{begin_s}000-0")
    assert await history.append(RUN, span_of(1))
    await history.drop_future(RUN, now_s)
    assert await groups_at(history, MINUTE) == [minute_s - 60]
    assert 0 < await redis_client.pttl(KEYS.series(60)) <= LONGEST_S * 1000
    assert await history.append(RUN, span_of(2))
    assert await history.merge(RUN, FINE, MINUTE, minute_s, span_of(3), now_s)
    assert await groups_at(history, MINUTE) == [minute_s - 60, 3]
    await history.drop_future(RUN, now_s + 60)
    assert await groups_at(history, MINUTE) == [minute_s - 60, 3], "all of them have ended"


async def test_a_run_is_watched_for_seconds_also_if_the_clock_was_ahead(
    store: Store, history: HistoryStore, redis_client: Redis
) -> None:
    await redis_client.zadd(WATCHED, {"other": await history.now_s() + 86_400})
    await history.watch(RUN)
    assert await history.watched() == {RUN}


async def test_a_damaged_span_is_named(store: Store, history: HistoryStore, redis_client: Redis) -> None:
    await redis_client.xadd(KEYS.series(10), {"facts": b"no span"})
    (found,) = await history.spans(RUN, FINE, 0, 1e12)
    with pytest.raises(UnreadableRecord, match=RUN):
        parse_span(RUN, found)
