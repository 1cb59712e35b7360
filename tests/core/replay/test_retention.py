"""Compare retention with brute force, and check uses as samples come and go."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import combinations
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.replay.buffer import ChunkRecord, Occupancy, uses_open
from lachesis.wire.replay import Eviction, ReplaySettings
from tests.core.replay.retention import EvictionPlan, acknowledge, eviction_key, give_back, make_room, reserve
from tests.core.replay.test_buffer import chunk
from tests.properties import examples

CHUNKS = st.lists(
    st.builds(
        chunk,
        payload_bytes=st.integers(1, 50),
        uses=st.integers(0, 3),
        priority=st.sampled_from([0.0, 0.5, 2.0]),
    ),
    max_size=7,
).map(lambda chunks: [replace(each, chunk_id=place + 1) for place, each in enumerate(chunks)])
ARCHIVED = st.sets(st.integers(1, 7))
"""The ids of archived chunks."""


def bytes_of(chunks: Iterable[ChunkRecord]) -> int:
    return sum(each.payload_bytes for each in chunks)


def goes_before(one: ChunkRecord, other: ChunkRecord, eviction: Eviction, archived: Collection[int]) -> bool:
    """Return whether one goes first, as the documentation has it."""
    if (one.chunk_id in archived) != (other.chunk_id in archived):
        return one.chunk_id in archived
    if eviction == "most_used" and one.uses != other.uses:
        return one.uses > other.uses
    if eviction == "lowest_priority" and one.priority != other.priority:
        return one.priority < other.priority
    return one.chunk_id < other.chunk_id


@examples(500)
@given(
    CHUNKS,
    ARCHIVED,
    st.integers(1, 60),
    st.integers(1, 8),
    st.none() | st.integers(60, 200),
    st.sampled_from(get_args(Eviction)),
)
def test_the_fewest_that_come_first_go_for_a_newcomer(
    chunks: list[ChunkRecord],
    archived: set[int],
    payload_bytes: int,
    max_chunks: int,
    max_bytes: int | None,
    eviction: Eviction,
) -> None:
    settings = ReplaySettings(max_chunks=max_chunks, max_bytes=max_bytes, eviction=eviction)
    newcomer = chunk(0, payload_bytes)

    def roomy(kept: list[ChunkRecord]) -> bool:
        return len(kept) < max_chunks and (max_bytes is None or bytes_of(kept) + payload_bytes <= max_bytes)

    def closed(gone: tuple[ChunkRecord, ...]) -> bool:
        """Nobody stays who goes before one that goes."""
        kept = [each for each in chunks if each not in gone]
        return not any(goes_before(stays, goes, eviction, archived) for stays in kept for goes in gone)

    possible = (
        gone
        for count in range(len(chunks) + 1)
        for gone in combinations(chunks, count)
        if closed(gone) and roomy([each for each in chunks if each not in gone])
    )
    room = make_room(newcomer, Occupancy(len(chunks), bytes_of(chunks)), reversed(chunks), settings, archived)
    assert room.enough
    assert set(room.evicted) == set(next(possible))


@given(CHUNKS, ARCHIVED, st.integers(0, 7), st.sampled_from(get_args(Eviction)))
def test_the_first_few_candidates_are_enough_or_more_are_asked_for(
    chunks: list[ChunkRecord], archived: set[int], seen: int, eviction: Eviction
) -> None:
    settings = ReplaySettings(max_chunks=3, max_bytes=70, eviction=eviction)
    held = Occupancy(len(chunks), bytes_of(chunks))
    heads = sorted(chunks, key=lambda each: eviction_key(each, settings, archived))[:seen]
    whole, part = (make_room(chunk(0, 30), held, candidates, settings, archived) for candidates in (chunks, heads))
    assert part == (whole if len(whole.evicted) <= seen else EvictionPlan(tuple(heads), enough=False))


@given(st.lists(st.sampled_from(["reserve", "ack", "nack"]), max_size=40), st.none() | st.integers(1, 4))
def test_no_chunk_is_used_more_than_it_may_whatever_samples_do(events: list[str], max_reuse: int | None) -> None:
    settings = ReplaySettings(max_reuse=max_reuse)
    now, taken, acknowledged, ended = chunk(), 0, 0, 0
    for event in events:
        left = uses_open(now, settings)
        assert left == (None if max_reuse is None else max_reuse - acknowledged - (taken - ended))
        if event == "reserve" and left != 0:
            now, taken = reserve(now, settings), taken + 1
        elif event == "ack" and now.reserved:
            now, acknowledged, ended = acknowledge(now), acknowledged + 1, ended + 1
        elif event == "nack" and now.reserved:
            now, ended = give_back(now), ended + 1
        assert (now.uses, now.reserved) == (acknowledged, taken - ended)
        assert max_reuse is None or now.uses + now.reserved <= max_reuse


def test_what_is_not_there_can_neither_be_reserved_nor_given_back() -> None:
    with pytest.raises(ValueError, match="no use left"):
        reserve(chunk(uses=1, reserved=1), ReplaySettings(max_reuse=2))
    for end in (acknowledge, give_back):
        with pytest.raises(ValueError, match="no sample holds"):
            end(chunk())
