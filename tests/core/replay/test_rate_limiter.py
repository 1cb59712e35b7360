"""The limiter against the inequalities it stands for, and two sides that always get on."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.core.replay.rate_limiter import (
    LimiterBlock,
    LimiterState,
    adjusted,
    check,
    demand_to_note,
    error,
    inserts_in_order,
    inserts_open,
    largest_insert,
    largest_sample,
    may_insert,
    may_sample,
    samples_in_order,
    samples_open,
)
from lachesis.wire.errors import InvalidField
from lachesis.wire.replay import RateLimiter
from lachesis.wire.states import BlockedOn
from tests.properties import examples

BAND = RateLimiter(samples_per_insert=4, min_diff=-10, max_diff=20)


def _band(samples_per_insert: float, min_diff: float, max_diff: float) -> RateLimiter:
    return RateLimiter(samples_per_insert=samples_per_insert, min_diff=min_diff, max_diff=max_diff)


@st.composite
def bands(draw: st.DrawFn) -> RateLimiter:
    """Draw settings that `check` takes, in quarters, so that sums are exact."""
    aim = draw(st.integers(1, 40)) / 4
    low = draw(st.integers(-80, 80)) / 4
    return _band(aim, low, low + 2 * max(1, aim) + draw(st.integers(0, 200)) / 4)


POSITIONS = st.builds(
    LimiterState,
    inserts=st.integers(0, 60),
    samples=st.integers(0, 200),
    size=st.integers(0, 60),
    offset=st.integers(-20, 20).map(float),
    demand=st.integers(0, 20),
)


@examples(500)
@given(bands(), POSITIONS, st.integers(1, 20), st.integers(1, 12))
def test_it_is_the_inequalities_of_reverb(
    settings: RateLimiter, position: LimiterState, least: int, count: int
) -> None:
    ahead = error(position, settings)
    at_once = largest_insert(settings)
    assert at_once is not None
    missing = max(
        max(least, position.demand) - position.size,
        math.ceil((settings.min_diff + position.demand - ahead) / settings.samples_per_insert),
    )
    free = missing > 0 and count <= max(missing, at_once)
    inserts = free or ahead + count * settings.samples_per_insert <= settings.max_diff
    samples = position.size >= max(least, count) and ahead - count >= settings.min_diff
    assert (may_insert(count, position, settings, least) is None) == inserts
    assert (may_sample(count, position, settings, least) is None) == samples


@examples(500)
@given(bands(), POSITIONS, st.integers(1, 20))
def test_what_is_open_may_be_done_and_no_more(settings: RateLimiter, position: LimiterState, least: int) -> None:
    inserts, samples = inserts_open(position, settings, least), samples_open(position, settings, least)
    assert inserts is not None
    assert may_insert(inserts, position, settings, least) is None
    assert may_insert(inserts + 1, position, settings, least) is not None
    assert samples == 0 or may_sample(samples, position, settings, least) is None
    assert may_sample(samples + 1, position, settings, least) is not None


@examples(300)
@given(bands(), POSITIONS, st.integers(1, 20), st.lists(st.integers(1, 6), max_size=6))
def test_in_order_each_is_served_that_those_served_before_it_leave_room_for(
    settings: RateLimiter, position: LimiterState, least: int, counts: list[int]
) -> None:
    ways: list[tuple[Any, Any, Callable[[int], LimiterState]]] = [
        (
            inserts_in_order,
            may_insert,
            lambda n: replace(position, inserts=position.inserts + n, size=position.size + n),
        ),
        (samples_in_order, may_sample, lambda n: replace(position, samples=position.samples + n)),
    ]
    for in_order, may, after in ways:
        blocks = in_order(counts, position, settings, least)
        for number, (count, block) in enumerate(zip(counts, blocks, strict=True)):
            served = sum(one for one, its in zip(counts[:number], blocks, strict=False) if its is None)
            assert block == may(count, after(served), settings, least)


def test_a_small_request_passes_a_large_one_that_waits_and_takes_room_from_those_behind() -> None:
    counts = [3, 3, 2, 1]
    five_more = LimiterState(inserts=10, samples=40, size=10)
    served = [block is None for block in inserts_in_order(counts, five_more, BAND, 1)]
    assert served == [True, False, True, False]
    five_left = LimiterState(inserts=10, samples=45, size=10)
    assert [block is None for block in samples_in_order(counts, five_left, BAND, 1)] == served


def test_why_a_side_waits_is_said_with_the_error_there_would_be() -> None:
    position = LimiterState(inserts=10, samples=25, size=10)
    assert may_insert(3, position, BAND, 1) == LimiterBlock(
        "samples",
        7,
        "inserting 3 would take the error from 15 to 27, above max_diff = 20: 1 may be inserted before more is sampled",
    )
    assert may_sample(10, replace(position, samples=45), BAND, 1) == LimiterBlock(
        "inserts",
        2,
        "sampling 10 would take the error from -5 to -15, "
        "below min_diff = -10: 5 may be sampled before more is inserted",
    )


@examples(500)
@given(bands(), POSITIONS, st.integers(1, 20), st.integers(1, 12))
def test_what_is_missing_is_exactly_what_unblocks(
    settings: RateLimiter, position: LimiterState, least: int, count: int
) -> None:
    for ask in (may_insert, may_sample):
        now = replace(position, demand=0)
        while (blocked := ask(count, now, settings, least)) is not None:
            almost, enough = (_after(now, blocked.blocked_on, blocked.missing - early) for early in (1, 0))
            assert ask(count, almost, settings, least) is not None
            now = enough
            assert ask(count, now, settings, least) is None or blocked.blocked_on == "chunks"


def _after(position: LimiterState, blocked_on: BlockedOn, count: int) -> LimiterState:
    match blocked_on:
        case "samples":
            return replace(position, samples=position.samples + count)
        case "inserts":
            return replace(position, inserts=position.inserts + count)
    return replace(position, size=position.size + count)


@examples(500)
@given(bands(), POSITIONS, st.integers(1, 20), st.integers(1, 40), st.integers(1, 40))
def test_both_sides_never_wait_for_each_other(
    settings: RateLimiter, position: LimiterState, least: int, sample: int, insert: int
) -> None:
    """Whatever became of the chunks: a trainer that waits is counted in the demand."""
    most_sampled, most_inserted = largest_sample(settings), largest_insert(settings)
    assert most_sampled is not None
    assert most_inserted is not None
    assert min(most_sampled, most_inserted) >= 1
    sample, insert = min(sample, most_sampled), min(insert, most_inserted)
    waiting = replace(position, demand=sample)
    assert may_sample(sample, waiting, settings, least) is None or may_insert(insert, waiting, settings, least) is None


def test_a_demand_counts_for_a_while_and_the_largest_one_first() -> None:
    """A trainer that polls says so again; not each time, as each time is a write."""
    first = demand_to_note(8, (0, 0), 1_000)
    assert first == (8, 101_000)
    assert demand_to_note(8, first, 50_000) is None
    assert demand_to_note(8, first, 51_000) == (8, 151_000)
    assert demand_to_note(3, first, 100_999) is None
    assert demand_to_note(3, first, 101_000) == (3, 201_000)
    assert demand_to_note(9, first, 2_000) == (9, 102_000)


def test_a_smaller_band_would_deadlock() -> None:
    """That `check` and `largest_sample` refuse no more than they must."""
    narrow = RateLimiter(samples_per_insert=1, min_diff=0, max_diff=1.75)
    stuck = LimiterState(inserts=2, samples=1, size=5, offset=-0.1)
    assert may_insert(1, stuck, narrow, 1) is not None
    assert may_sample(1, stuck, narrow, 1) is not None
    most = largest_sample(BAND)
    assert most == 26
    stuck = LimiterState(inserts=0, size=100, offset=16.5)
    assert may_insert(1, stuck, BAND, 1) is not None
    assert may_sample(most + 1, stuck, BAND, 1) is not None


@pytest.mark.parametrize(
    ("settings", "max_reuse", "field"),
    [
        (_band(1, 1e300, 2e300), None, "min_diff"),
        (_band(1, -2e17, -1e17), None, "max_diff"),
        (_band(0.5, 0, 1.9), None, "max_diff"),
        (_band(3, 0, 5.9), None, "max_diff"),
        (_band(3, -1e308, 1e308), None, "max_diff"),
        (_band(3, 0, 6), 2, "samples_per_insert"),
    ],
)
def test_settings_that_must_deadlock_are_refused(settings: RateLimiter, max_reuse: int | None, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check(settings, max_reuse)
    assert refused.value.location == (field,)
    assert refused.value.message.startswith("is ")


@pytest.mark.parametrize("aim", [0, 5e-324, 1e7, math.inf, math.nan])
def test_an_aim_out_of_bounds_is_refused(aim: float) -> None:
    with pytest.raises(ValidationError, match="samples_per_insert"):
        _band(aim, 0, 1e9)


def test_the_narrowest_band_is_taken() -> None:
    check(_band(3, 0, 6), max_reuse=3)
    check(_band(0.5, 0, 2), max_reuse=None)


def test_a_side_of_the_band_may_be_as_good_as_open() -> None:
    slow, fast = _band(1e-6, -1e308, 2), _band(1, 0, 1e308)
    for settings in (slow, fast):
        check(settings, max_reuse=None)
        assert may_insert(1, LimiterState(), settings, 1) is None
        assert may_sample(1, LimiterState(inserts=1, size=1), settings, 1) is None
        assert (largest_insert(settings) or 0) >= 2**53


@pytest.mark.parametrize("settings", [_band(0.5, 0, 1.7e308), _band(1e-6, -1.7e308, 0), _band(4, -8e307, 8e307)])
@given(POSITIONS, st.integers(1, 20))
def test_a_bound_that_no_count_reaches_is_no_bound(settings: RateLimiter, position: LimiterState, count: int) -> None:
    check(settings, max_reuse=None)
    for found in (inserts_open(position, settings, 1), largest_insert(settings), largest_sample(settings)):
        assert found is not None
        assert 0 <= found <= 2**53
    assert samples_open(position, settings, 1) <= position.size
    blocked = may_insert(count, position, settings, 1), may_sample(count, position, settings, 1)
    assert all(block is None or block.missing <= 2**53 for block in blocked)


def test_without_a_band_only_chunks_are_waited_for() -> None:
    there = LimiterState(inserts=10**6, size=7)
    assert may_insert(10**6, there, None, 1) is None
    assert (inserts_open(there, None, 1), samples_open(there, None, 1)) == (None, 7)
    assert (largest_sample(None), largest_insert(None)) == (None, None)
    assert may_sample(9, there, None, 1) == LimiterBlock("chunks", 2, "sampling 9 needs 9 chunks; 7 can be sampled")
    assert may_sample(1, there, None, 8) is not None


def test_sums_of_tenths_do_not_block() -> None:
    tenths = RateLimiter(samples_per_insert=0.1, min_diff=-2, max_diff=0.3)
    assert may_insert(1, LimiterState(inserts=2, size=2), tenths, 1) is None
    assert 3 * 0.1 > 0.3
    blocked = may_insert(1, LimiterState(inserts=12, size=12), tenths, 1)
    assert blocked is not None
    assert blocked.missing == 1


@examples(300)
@given(bands(), bands(), POSITIONS)
def test_new_settings_go_on_from_the_error_there_was(
    old: RateLimiter, new: RateLimiter, position: LimiterState
) -> None:
    before = error(position, old)
    assume(new != old)
    after = adjusted(position, old, new)
    assert error(after, new) == pytest.approx(min(max(before, new.min_diff), new.max_diff))
    assert replace(after, offset=position.offset) == position


@examples(100)
@given(st.none() | bands(), POSITIONS)
def test_the_same_limiter_keeps_its_error_wherever_it_is(limiter: RateLimiter | None, position: LimiterState) -> None:
    """Other settings of the buffer, and new sessions, change nothing about what waits."""
    assert adjusted(position, limiter, limiter) == position


def test_a_million_old_inserts_do_not_block_when_the_aim_doubles() -> None:
    old, new = _band(4, -100, 100), _band(8, -100, 100)
    position = LimiterState(inserts=10**6, samples=4 * 10**6, size=10**5)
    assert may_insert(1, position, new, 1) is not None
    assert may_insert(1, adjusted(position, old, new), new, 1) is None


def test_a_limiter_switched_on_finds_chunks_that_were_never_sampled() -> None:
    position = LimiterState(inserts=1000, samples=77, size=3)
    assert error(adjusted(position, None, BAND), BAND) == 3 * 4
    assert error(adjusted(replace(position, size=500), None, BAND), BAND) == BAND.max_diff
    assert adjusted(replace(position, offset=5.0), BAND, None).offset == 0.0
