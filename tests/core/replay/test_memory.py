"""How much memory replay buffers may take, and who gives how much of it back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.replay.memory import StoreMemory, bytes_to_free, default_max_bytes, is_full, shares


@pytest.mark.parametrize(("limit", "expected"), [(4_000, 1_000), (0, 2_000), (3, 1)])
def test_a_buffer_without_a_bound_has_a_quarter_of_what_its_server_may_take(limit: int, expected: int) -> None:
    assert default_max_bytes(StoreMemory(used_bytes=7, limit_bytes=limit, machine_bytes=8_000)) == expected


@given(st.integers(0, 2_000), st.integers(0, 1_000))
def test_what_goes_once_the_store_is_full_makes_room(used: int, limit: int) -> None:
    memory = StoreMemory(used, limit, 10_000)
    after = StoreMemory(used - bytes_to_free(memory), limit, 10_000)
    assert not is_full(after)
    assert bytes_to_free(after) == 0
    if is_full(memory):
        assert bytes_to_free(memory) > 0
    assert is_full(memory) or limit == 0 or used < limit, "chunks go before the store refuses anything"


@given(st.integers(0, 10_000), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3_000)))
def test_each_buffer_gives_in_proportion_to_what_it_holds(wanted: int, held: dict[str, int]) -> None:
    given_back = shares(wanted, held)
    total = sum(held.values())
    assert sum(given_back.values()) >= min(wanted, total)
    for name, share in given_back.items():
        assert 1 <= share <= held[name]
        assert share - 1 < wanted * held[name] / total or wanted > total
