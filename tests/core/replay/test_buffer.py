"""Compare retention with brute force and with its messages. Check uses as samples come and go, and invalid requests."""

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.core.errors import InvalidField
from app.core.groups.staleness import oldest_fresh
from app.core.replay.buffer import (
    DEFAULT_PRIORITY,
    ChunkDropReason,
    ChunkRecord,
    Eviction,
    EvictionPlan,
    Fragment,
    Occupancy,
    ReplayContext,
    ReplayPolicy,
    Versions,
    acknowledge,
    admit,
    chunk_drop_reason,
    chunk_of,
    eviction_key,
    give_back,
    make_room,
    reserve,
    uses_open,
    versions_of,
)
from app.core.replay.checks import check_policy, chunks_wanted
from app.core.replay.rate_limiter import LimiterSettings
from app.core.replay.sampling import SamplingSettings, SamplingStrategy
from tests.properties import examples

NOW = ReplayContext(session=2, version=10, clock_ms=60_000)


def chunk(chunk_id: int = 1, payload_bytes: int = 100, version: int = 10, **facts: Any) -> ChunkRecord:
    given = {"session": 2, "first": 0, "fragments": 1, "inserted_ms": 60_000, "priority": 1.0} | facts
    return ChunkRecord(
        chunk_id, "w", versions=Versions(version, version, version), payload_bytes=payload_bytes, **given
    )


def test_per_token_versions_have_a_lowest_a_mean_and_a_highest() -> None:
    assert versions_of([4, 4, 5, 7]) == Versions(4, 5.0, 7, 4)
    assert versions_of(np.array([[2**31 - 1]] * 3, np.int32)) == Versions(2**31 - 1, 2.0**31 - 1, 2**31 - 1, 3)


@given(st.lists(st.lists(st.integers(0, 2**40), min_size=1, max_size=5), min_size=1, max_size=5))
def test_a_chunks_versions_are_those_of_all_its_tokens(tokens: list[list[int]]) -> None:
    """So its version is that of its oldest fragment."""
    parts = [Fragment("w", 1, 7 + n, versions_of(part), 10, "", 5) for n, part in enumerate(tokens)]
    whole, expected = chunk_of(parts, 9), versions_of([version for part in tokens for version in part])
    assert whole.versions.mean == pytest.approx(expected.mean)
    assert replace(whole.versions, mean=0) == replace(expected, mean=0)
    assert whole.versions.lowest <= whole.versions.mean <= whole.versions.highest
    assert (whole.first, whole.fragments, whole.payload_bytes, whole.inserted_ms) == (7, len(parts), 10 * len(parts), 9)


@pytest.mark.parametrize(
    ("given_priorities", "priority"), [([None, None], DEFAULT_PRIORITY), ([0.25, None], 0.25), ([0.25, 3.0], 3.0)]
)
def test_a_chunks_priority_is_the_largest_that_was_given(given_priorities: list[float | None], priority: float) -> None:
    parts = [Fragment("w", 1, 0, Versions(1, 1, 1), 1, "", 0, each) for each in given_priorities]
    assert chunk_of(parts, 0).priority == priority


LIMITS = ReplayPolicy(max_staleness=3, max_age_s=30, max_reuse=2, max_bytes=1000)


@pytest.mark.parametrize(
    ("judged", "reason"),
    [
        (chunk(), None),
        (chunk(session=1), ChunkDropReason.OLD_SESSION),
        (chunk(session=3), ChunkDropReason.FUTURE_SESSION),
        (chunk(version=7), None),
        (chunk(version=6), ChunkDropReason.STALE),
        (replace(chunk(), versions=Versions(8, 9.5, 11, 2)), ChunkDropReason.FUTURE_VERSION),
        (replace(chunk(), versions=Versions(6, 9.9, 10, 100)), ChunkDropReason.STALE),
        (chunk(inserted_ms=30_000), None),
        (chunk(inserted_ms=29_999), ChunkDropReason.EXPIRED),
        (chunk(uses=1, reserved=1), None),
        (chunk(uses=2), ChunkDropReason.USED_UP),
        (chunk(payload_bytes=1000), None),
        (chunk(payload_bytes=1001), ChunkDropReason.TOO_LARGE),
    ],
)
def test_a_chunk_is_unfit_for_a_reason(judged: ChunkRecord, reason: ChunkDropReason | None) -> None:
    assert chunk_drop_reason(judged, NOW, LIMITS) is reason
    assert chunk_drop_reason(replace(judged, session=2), replace(NOW, version=99), ReplayPolicy()) is None


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_a_range_of_versions_is_what_a_new_version_retires(version: int, current: int, max_staleness: int) -> None:
    """The store need not look at each chunk: those below one version are stale, and no others."""
    assume(version <= current)
    policy = ReplayPolicy(max_staleness=max_staleness)
    stale = chunk_drop_reason(chunk(version=version), replace(NOW, version=current), policy) is ChunkDropReason.STALE
    assert stale == (version < oldest_fresh(current, max_staleness))


CHUNKS = st.lists(
    st.builds(
        chunk,
        payload_bytes=st.integers(1, 50),
        uses=st.integers(0, 3),
        priority=st.sampled_from([0.0, 0.5, 2.0]),
        retired=st.booleans(),
    ),
    max_size=7,
).map(lambda chunks: [replace(each, chunk_id=place + 1) for place, each in enumerate(chunks)])


def bytes_of(chunks: Iterable[ChunkRecord]) -> int:
    return sum(each.payload_bytes for each in chunks)


def goes_before(one: ChunkRecord, other: ChunkRecord, eviction: Eviction) -> bool:
    """Whether one goes first, as the documentation has it."""
    if one.retired != other.retired:
        return one.retired
    if eviction is Eviction.MOST_USED and one.uses != other.uses:
        return one.uses > other.uses
    if eviction is Eviction.LOWEST_PRIORITY and one.priority != other.priority:
        return one.priority < other.priority
    return one.chunk_id < other.chunk_id


@examples(500)
@given(CHUNKS, st.integers(1, 60), st.integers(1, 8), st.none() | st.integers(60, 200), st.sampled_from(Eviction))
def test_the_fewest_that_come_first_go_for_a_newcomer(
    chunks: list[ChunkRecord], payload_bytes: int, max_chunks: int, max_bytes: int | None, eviction: Eviction
) -> None:
    policy = ReplayPolicy(max_chunks=max_chunks, max_bytes=max_bytes, eviction=eviction)
    newcomer = chunk(0, payload_bytes)

    def roomy(kept: list[ChunkRecord]) -> bool:
        return len(kept) < max_chunks and (max_bytes is None or bytes_of(kept) + payload_bytes <= max_bytes)

    def closed(gone: tuple[ChunkRecord, ...]) -> bool:
        """Nobody stays who goes before one that goes."""
        kept = [each for each in chunks if each not in gone]
        return not any(goes_before(stays, goes, eviction) for stays in kept for goes in gone)

    possible = (
        gone
        for count in range(len(chunks) + 1)
        for gone in combinations(chunks, count)
        if closed(gone) and roomy([each for each in chunks if each not in gone])
    )
    room = make_room(newcomer, Occupancy(len(chunks), bytes_of(chunks)), reversed(chunks), policy)
    assert room.enough
    assert set(room.evicted) == set(next(possible))


@given(CHUNKS, st.integers(0, 7), st.sampled_from(Eviction))
def test_the_first_few_candidates_are_enough_or_more_are_asked_for(
    chunks: list[ChunkRecord], seen: int, eviction: Eviction
) -> None:
    policy = ReplayPolicy(max_chunks=3, max_bytes=70, eviction=eviction)
    held = Occupancy(len(chunks), bytes_of(chunks))
    heads = sorted(chunks, key=lambda each: eviction_key(each, policy))[:seen]
    whole, part = (make_room(chunk(0, 30), held, candidates, policy) for candidates in (chunks, heads))
    assert part == (whole if len(whole.evicted) <= seen else EvictionPlan(tuple(heads), enough=False))


@given(CHUNKS, st.integers(0, 20), st.sampled_from(Eviction))
def test_a_stale_newcomer_never_evicts_a_chunk(chunks: list[ChunkRecord], version: int, eviction: Eviction) -> None:
    policy = ReplayPolicy(max_chunks=1, max_staleness=3, eviction=eviction)
    newcomer, held = chunk(0, version=version), Occupancy(len(chunks), bytes_of(chunks))
    answer = admit(newcomer, held, chunks, NOW, policy)
    if version < 7:
        assert answer is ChunkDropReason.STALE
    elif version > 10:
        assert answer is ChunkDropReason.FUTURE_VERSION
    else:
        assert answer == make_room(newcomer, held, chunks, policy)


@given(st.lists(st.sampled_from(["reserve", "ack", "nack"]), max_size=40), st.none() | st.integers(1, 4))
def test_no_chunk_is_used_more_than_it_may_whatever_samples_do(events: list[str], max_reuse: int | None) -> None:
    policy = ReplayPolicy(max_reuse=max_reuse)
    now, taken, acknowledged, ended = chunk(), 0, 0, 0
    for event in events:
        left = uses_open(now, policy)
        assert left == (None if max_reuse is None else max_reuse - acknowledged - (taken - ended))
        if event == "reserve" and left != 0:
            now, taken = reserve(now, policy), taken + 1
        elif event == "ack" and now.reserved:
            now, acknowledged, ended = acknowledge(now), acknowledged + 1, ended + 1
        elif event == "nack" and now.reserved:
            now, ended = give_back(now), ended + 1
        assert (now.uses, now.reserved) == (acknowledged, taken - ended)
        assert max_reuse is None or now.uses + now.reserved <= max_reuse


def test_what_is_not_there_can_neither_be_reserved_nor_given_back() -> None:
    with pytest.raises(ValueError, match="no use left"):
        reserve(chunk(uses=1, reserved=1), ReplayPolicy(max_reuse=2))
    for end in (acknowledge, give_back):
        with pytest.raises(ValueError, match="no sample holds"):
            end(chunk())


def test_reuse_that_was_lowered_meanwhile_leaves_no_use_open() -> None:
    assert uses_open(chunk(uses=3, reserved=1), ReplayPolicy(max_reuse=2)) == 0


FOURS = ReplayPolicy(fragments_per_chunk=4, max_chunks=100, limiter=LimiterSettings(2, 0, 34))


@pytest.mark.parametrize(("fragments", "chunks", "wanted"), [(8, None, 2), (None, 8, 8), (128, None, 32)])
def test_a_sample_is_asked_for_in_fragments_or_chunks(fragments: int | None, chunks: int | None, wanted: int) -> None:
    assert chunks_wanted(fragments, chunks, FOURS) == wanted


@pytest.mark.parametrize(
    ("fragments", "chunks", "said"),
    [
        (None, None, "either"),
        (4, 1, "either"),
        (6, None, "no multiple of fragments_per_chunk = 4"),
        (0, None, "less than 1"),
        (None, -1, "less than 1"),
        (None, 101, "more than max_chunks = 100"),
        (None, 33, "limiter"),
    ],
)
def test_what_can_never_be_had_is_refused(fragments: int | None, chunks: int | None, said: str) -> None:
    with pytest.raises(InvalidField, match=said):
        chunks_wanted(fragments, chunks, FOURS)


def test_a_sample_of_chunks_has_no_more_fragments_than_one_of_fragments() -> None:
    policy = ReplayPolicy(fragments_per_chunk=1000)
    assert chunks_wanted(None, 65, policy) == 65
    for fragments, chunks in ((66_000, None), (None, 66)):
        with pytest.raises(InvalidField, match="65 chunks of 1000 fragments"):
            chunks_wanted(fragments, chunks, policy)


@pytest.mark.parametrize(
    "wrong",
    [
        {"fragments_per_chunk": 0},
        {"max_chunks": 0},
        {"max_bytes": 0},
        {"max_staleness": -1},
        {"max_age_s": 0.0},
        {"max_age_s": math.nan},
        {"max_reuse": 0},
        {"min_size_to_sample": 0},
        {"min_size_to_sample": 10_001},
        {"reorder_window_s": -1.0},
        {"max_waiting": 0},
        {"fragment_ttl_s": math.inf},
        {"seed": 2**64},
        {"alpha": 4.5},
        {"alpha": math.nan},
        {"beta": 1.1},
        {"half_life_chunks": 5e-324},
    ],
    ids=str,
)
def test_a_policy_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    (field,) = wrong
    owner = SamplingSettings if hasattr(SamplingSettings(), field) else ReplayPolicy
    policy = ReplayPolicy(sampling=SamplingSettings(**wrong)) if owner is SamplingSettings else ReplayPolicy(**wrong)
    with pytest.raises(InvalidField, match=field) as refused:
        check_policy(policy)
    assert refused.value.location == (field,)


def test_the_lowest_priority_cannot_go_first_where_all_weigh_the_same() -> None:
    """Chunks stand in order of their weights, priority ** alpha: with alpha 0 the oldest would go."""
    weightless = ReplayPolicy(sampling=SamplingSettings(alpha=0.0))
    check_policy(weightless)
    with pytest.raises(InvalidField, match=r"sampling\.alpha = 0") as refused:
        check_policy(replace(weightless, eviction=Eviction.LOWEST_PRIORITY))
    assert refused.value.location == ("eviction",)


def test_a_policy_whose_limiter_deadlocks_is_refused_and_others_are_not() -> None:
    check_policy(ReplayPolicy())
    check_policy(
        replace(
            FOURS, max_reuse=2, sampling=SamplingSettings(SamplingStrategy.RANK, alpha=0, beta=1, half_life_chunks=1e-3)
        )
    )
    with pytest.raises(InvalidField, match="max_reuse = 1"):
        check_policy(replace(FOURS, max_reuse=1))
