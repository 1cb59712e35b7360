"""Check versions, reasons to drop a chunk, open uses, and invalid requests."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.core.groups.staleness import oldest_fresh
from app.core.replay.buffer import (
    DEFAULT_PRIORITY,
    ChunkRecord,
    Fragment,
    ReplayContext,
    Versions,
    chunk_drop_reason,
    chunk_of,
    uses_open,
    versions_of,
)
from app.core.replay.checks import check_settings, chunks_wanted
from lachesis.wire.errors import InvalidField
from lachesis.wire.replay import RateLimiter, ReplaySettings, Sampling
from lachesis.wire.states import ChunkDropReason

NOW = ReplayContext(session=2, version=10, clock_ms=60_000)


def chunk(chunk_id: int = 1, payload_bytes: int = 100, version: int = 10, **facts: Any) -> ChunkRecord:
    given = {"session": 2, "first": 0, "fragments": 1, "inserted_ms": 60_000, "priority": 1.0} | facts
    return ChunkRecord(
        chunk_id, "w", versions=Versions(version, version, version), payload_bytes=payload_bytes, **given
    )


def test_per_token_versions_have_a_lowest_a_mean_and_a_highest() -> None:
    assert versions_of([4, 4, 5, 7]) == Versions(4, 5.0, 7, 4)
    assert versions_of(np.array([[2**31 - 1]] * 3, np.int32)) == Versions(2**31 - 1, 2.0**31 - 1, 2**31 - 1, 3)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 9)), min_size=1))
def test_versions_that_sampled_several_tokens_each_are_those_of_these_tokens(sampled: list[tuple[int, int]]) -> None:
    versions, tokens = zip(*sampled, strict=True)
    counted, each = versions_of(versions, tokens), versions_of(np.repeat(versions, tokens))
    assert counted.mean == pytest.approx(each.mean)
    assert replace(counted, mean=0) == replace(each, mean=0)


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


LIMITS = ReplaySettings(max_staleness=3, max_age_s=30, max_reuse=2, max_bytes=1000)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (chunk(), None),
        (chunk(session=1), "old_session"),
        (chunk(session=3), "future_session"),
        (chunk(version=7), None),
        (chunk(version=6), "stale"),
        (replace(chunk(), versions=Versions(8, 9.5, 11, 2)), "future_version"),
        (replace(chunk(), versions=Versions(6, 9.9, 10, 100)), "stale"),
        (chunk(inserted_ms=30_000), None),
        (chunk(inserted_ms=29_999), "expired"),
        (chunk(uses=1, reserved=1), None),
        (chunk(uses=2), "used_up"),
        (chunk(payload_bytes=1000), None),
        (chunk(payload_bytes=1001), "too_large"),
    ],
)
def test_a_chunk_has_a_drop_reason(record: ChunkRecord, reason: ChunkDropReason | None) -> None:
    assert chunk_drop_reason(record, NOW, LIMITS) is reason
    assert chunk_drop_reason(replace(record, session=2), replace(NOW, version=99), ReplaySettings()) is None


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_a_range_of_versions_is_what_a_new_version_retires(version: int, current: int, max_staleness: int) -> None:
    """The store need not look at each chunk: those below one version are stale, and no others."""
    assume(version <= current)
    settings = ReplaySettings(max_staleness=max_staleness)
    stale = chunk_drop_reason(chunk(version=version), replace(NOW, version=current), settings) == "stale"
    assert stale == (version < oldest_fresh(current, max_staleness))


def test_reuse_that_was_lowered_leaves_no_use_open() -> None:
    assert uses_open(chunk(uses=3, reserved=1), ReplaySettings(max_reuse=2)) == 0


FOURS = ReplaySettings(
    fragments_per_chunk=4, max_chunks=100, limiter=RateLimiter(samples_per_insert=2, min_diff=0, max_diff=34)
)


@pytest.mark.parametrize(("fragments", "chunks", "wanted"), [(8, None, 2), (None, 8, 8), (128, None, 32)])
def test_a_sample_is_asked_for_in_fragments_or_chunks(fragments: int | None, chunks: int | None, wanted: int) -> None:
    assert chunks_wanted(fragments, chunks, FOURS) == wanted


@pytest.mark.parametrize(
    ("fragments", "chunks", "said"),
    [
        (None, None, "^num_chunks: is missing: send num_chunks or num_fragments"),
        (4, 1, "^num_chunks: came together with num_fragments: send only one"),
        (6, None, "^num_fragments: is 6, which is not a multiple of fragments_per_chunk = 4"),
        (0, None, "^num_fragments: should be 1 or more, not 0"),
        (None, -1, "^num_chunks: should be 1 or more, not -1"),
        (None, 101, "^num_chunks: is 101, more than max_chunks = 100"),
        (None, 33, "^num_chunks: is 33, but with this limiter a sample has at most 32 chunks"),
    ],
)
def test_what_can_never_be_had_is_refused(fragments: int | None, chunks: int | None, said: str) -> None:
    with pytest.raises(InvalidField, match=said):
        chunks_wanted(fragments, chunks, FOURS)


def test_a_sample_may_be_the_whole_buffer() -> None:
    assert chunks_wanted(None, 9, ReplaySettings(max_chunks=9)) == 9
    assert chunks_wanted(None, 1, ReplaySettings(max_chunks=1)) == 1


@pytest.mark.parametrize(("size", "most"), [(1, 8192), (8, 8192), (1000, 65)])
def test_a_sample_is_limited_in_chunks_and_in_fragments(size: int, most: int) -> None:
    settings = ReplaySettings(fragments_per_chunk=size)
    assert chunks_wanted(None, most, settings) == most
    for fragments, chunks in (((most + 1) * size, None), (None, most + 1)):
        with pytest.raises(InvalidField, match=f"at most {most} chunks of {size} fragments"):
            chunks_wanted(fragments, chunks, settings)


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
def test_a_setting_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    (field,) = wrong
    owner = Sampling if field in Sampling.model_fields else ReplaySettings
    with pytest.raises(ValidationError) as refused:
        owner(**wrong)
    assert [each["loc"] for each in refused.value.errors()] == [(field,)]


def test_a_buffer_that_cannot_hold_what_must_be_there_to_sample_is_refused() -> None:
    with pytest.raises(InvalidField, match=r"^min_size_to_sample: is 10001, more than max_chunks") as refused:
        check_settings(ReplaySettings(min_size_to_sample=10_001))
    check_settings(ReplaySettings(min_size_to_sample=10_000))
    assert refused.value.location == ("min_size_to_sample",)


def test_the_lowest_priority_cannot_go_first_where_all_weigh_the_same() -> None:
    """Chunks stand in order of their weights, priority ** alpha: with alpha 0 the oldest would go."""
    weightless = ReplaySettings(sampling=Sampling(alpha=0.0))
    check_settings(weightless)
    check_settings(ReplaySettings(eviction="lowest_priority"))
    with pytest.raises(InvalidField, match=r"sampling\.alpha = 0") as refused:
        check_settings(weightless.model_copy(update={"eviction": "lowest_priority"}))
    assert refused.value.location == ("eviction",)


def test_a_policy_whose_limiter_deadlocks_is_refused_and_others_are_not() -> None:
    ranked = Sampling(strategy="rank", alpha=0, beta=1, half_life_chunks=1e-3)
    check_settings(ReplaySettings())
    check_settings(FOURS.model_copy(update={"max_reuse": 2, "sampling": ranked}))
    with pytest.raises(InvalidField, match="max_reuse = 1"):
        check_settings(FOURS.model_copy(update={"max_reuse": 1}))
