"""Micro-batches against brute force, and the invariants that all of them keep."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.ranks.balancing import balance
from app.core.ranks.micro_batches import MicroBatches, PackingMethod, fewest, most_needed, pack
from lachesis.wire.errors import InvalidField
from tests.properties import examples

CAPS = st.integers(1, 60)


@st.composite
def problems(draw: st.DrawFn, most: int = 40) -> tuple[list[int], int]:
    """Draw lengths, and a cap that holds each."""
    cap = draw(CAPS)
    return draw(st.lists(st.integers(0, cap), max_size=most)), cap


def taken(lengths: list[int], batch: tuple[int, ...] | list[int], padded: bool) -> int:
    own = [lengths[sequence] for sequence in batch]
    return max(own, default=0) * len(own) if padded else sum(own)


def fewest_possible(lengths: list[int], cap: int, padded: bool) -> int:
    """Put the first sequence into each micro-batch there is, or a new one, and so on."""

    def least(sequence: int, batches: list[list[int]]) -> int:
        if sequence == len(lengths):
            return len(batches)
        found = least(sequence + 1, [*batches, [sequence]])
        for i, batch in enumerate(batches):
            if taken(lengths, [*batch, sequence], padded) <= cap:
                found = min(found, least(sequence + 1, [*batches[:i], [*batch, sequence], *batches[i + 1 :]]))
        return found

    return least(0, [])


def check(packed: MicroBatches, lengths: list[int], cap: int, padded: bool) -> None:
    """Check what holds for every answer."""
    assert sorted(sequence for batch in packed.micro_batches for sequence in batch) == list(range(len(lengths)))
    assert all(taken(lengths, batch, padded) <= cap for batch in packed.micro_batches)
    assert all(list(batch) == sorted(batch) for batch in packed.micro_batches)
    number = len(packed.micro_batches)
    assert packed.bound <= number
    tokens = sum(lengths)
    assert packed.waste == pytest.approx(1 - tokens / (number * cap) if number else 0)
    assert packed.waste_of_bound == pytest.approx(1 - tokens / (packed.bound * cap) if packed.bound else 0)
    rows = sum(taken(lengths, batch, padded=True) for batch in packed.micro_batches)
    assert packed.waste_of_rows == pytest.approx(1 - tokens / rows if rows else 0)


@examples(300)
@given(problems(), st.booleans())
def test_every_sequence_is_in_one_micro_batch_that_may_hold_it(problem: tuple[list[int], int], padded: bool) -> None:
    lengths, cap = problem
    packed = pack(lengths, cap, padded=padded)
    check(packed, lengths, cap, padded)
    assert all(packed.micro_batches)


@examples(300)
@given(problems(most=7))
@example(([6, 6, 6, 6, 6], 10))  # three would hold all tokens, but no two fit together
def test_packed_micro_batches_are_few(problem: tuple[list[int], int]) -> None:
    lengths, cap = problem
    best = fewest_possible(lengths, cap, padded=False)
    packed = pack(lengths, cap)
    assert -(-sum(lengths) // cap) <= packed.bound <= best <= len(packed.micro_batches)
    assert len(packed.micro_batches) <= 11 / 9 * best + 6 / 9


@examples(200)
@given(problems(most=7))
def test_padded_micro_batches_are_as_few_as_is_possible(problem: tuple[list[int], int]) -> None:
    lengths, cap = problem
    assert len(pack(lengths, cap, padded=True).micro_batches) == fewest_possible(lengths, cap, padded=True)


@examples(200)
@given(problems(), st.integers(1, 6), st.booleans())
def test_ranks_that_need_it_have_the_same_number_of_micro_batches(
    problem: tuple[list[int], int], ranks: int, padded: bool
) -> None:
    lengths, cap = problem
    shards = [list(range(rank, len(lengths), ranks)) for rank in range(ranks)]
    theirs = [[lengths[sequence] for sequence in shard] for shard in shards]
    number = most_needed(lengths, shards, cap, padded=padded)
    assert number == max(len(pack(own, cap, padded=padded).micro_batches) for own in theirs)
    for own in theirs:
        packed = pack(own, cap, padded=padded, at_least=number)
        check(packed, own, cap, padded)
        assert len(packed.micro_batches) == number
        filled = sum(1 for batch in packed.micro_batches if batch)
        assert filled == min(number, len(own))
        assert all(packed.micro_batches[:filled])


def fits(lengths: list[int], cap: int, best: bool) -> int:
    """Count micro-batches by first fit or best fit, decreasing, said in the plainest way."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [i for i, room in enumerate(rooms) if room >= length]
        if not fitting:
            rooms.append(cap - length)
        else:
            rooms[min(fitting, key=lambda i: rooms[i]) if best else fitting[0]] -= length
    return len(rooms)


@examples(300)
@given(problems(most=60))
@example(([52, 52, 51, 51, 27, 26, 23, 10, 9, 8, 41, 40], 100))
def test_the_better_of_first_fit_and_best_fit_is_taken(problem: tuple[list[int], int]) -> None:
    lengths, cap = problem
    packed = pack(lengths, cap)
    first, best = fits(lengths, cap, best=False), fits(lengths, cap, best=True)
    assert len(packed.micro_batches) == min(first, best)
    assert packed.method is (PackingMethod.FIRST_FIT if first < best else PackingMethod.BEST_FIT)


def test_first_fit_and_best_fit_each_win_somewhere() -> None:
    """Or one of them could go."""
    first_fit_wins = [50, 50, 50, 43, 41, 40, 39, 39, 35, 33, 31, 28, 27, 26, 14, 12, 10, 9, 8]
    packed = pack(first_fit_wins, 100)
    assert (packed.method, len(packed.micro_batches)) == (PackingMethod.FIRST_FIT, 6)
    assert fits(first_fit_wins, 100, best=True) == 7
    best_fit_wins = [47, 45, 43, 42, 41, 40, 37, 36, 35, 28, 26, 23, 14, 13, 10, 7, 7]
    packed = pack(best_fit_wins, 100)
    assert packed.method is PackingMethod.BEST_FIT
    assert len(packed.micro_batches) < fits(best_fit_wins, 100, best=False)


def test_a_sequence_longer_than_the_cap_is_named() -> None:
    with pytest.raises(InvalidField, match="sequence 1 has 4097 tokens: it must be from 0 to 4096") as refused:
        pack([4096, 4097, 5000], 4096)
    assert refused.value.location == (1,)


@pytest.mark.parametrize(("lengths", "cap"), [([1], 0), ([1], 2**41), ([-1], 5), ([1.5], 5), ([[1]], 5)])
def test_what_cannot_be_packed_is_refused(lengths: list[int], cap: int) -> None:
    with pytest.raises(InvalidField):
        pack(lengths, cap)


def test_the_bound_sees_what_tokens_alone_do_not() -> None:
    assert fewest(np.array([6, 6, 6, 6, 6]), 10) == 5
    assert fewest(np.array([7, 7, 4, 4, 2]), 10) == 3


def bound_by_definition(lengths: list[int], cap: int) -> int:
    """Compute the bound L2 of Martello and Toth word for word, for every k up to half the cap."""

    def bound(k: int) -> int:
        long = [length for length in lengths if 2 * length > cap]
        shared = [length for length in long if length <= cap - k]
        short = sum(length for length in lengths if k <= length and 2 * length <= cap)
        return len(long) + max(0, -(-(short - sum(cap - length for length in shared)) // cap))

    return max(bool(lengths), *(bound(k) for k in range(cap // 2 + 1)))


@examples(300)
@given(problems(most=12))
@example(([6, 4], 10))
@example(([7, 7, 4, 4], 10))  # nothing fits beside the long ones
@example(([0, 0], 10))
def test_the_bound_is_the_largest_that_leaving_out_short_sequences_gives(problem: tuple[list[int], int]) -> None:
    lengths, cap = problem
    assert fewest(np.array(lengths, np.int64), cap) == bound_by_definition(lengths, cap)


def test_of_sequences_with_one_length_the_earlier_come_first() -> None:
    """A sort that is not stable may differ from machine to machine."""
    lengths = [6, 3] * 50
    packed = pack(lengths, 12, padded=True).micro_batches
    longer, shorter = list(range(0, 100, 2)), list(range(1, 100, 2))
    runs = [longer[at : at + 2] for at in range(0, 50, 2)] + [shorter[at : at + 4] for at in range(0, 50, 4)]
    assert packed == tuple(sorted(map(tuple, runs)))


def test_the_shards_of_a_balanced_batch_can_be_packed() -> None:
    lengths = np.random.default_rng(0).lognormal(6.5, 0.7, 256).astype(int).clip(1, 8192)
    shards = balance(lengths, 8).shards
    number = most_needed(lengths, shards, 8192)
    packed = [pack(lengths[shard], 8192, at_least=number) for shard in shards]
    assert {len(rank.micro_batches) for rank in packed} == {number}
    for shard, rank in zip(shards, packed, strict=True):
        assert sorted(place for batch in rank.micro_batches for place in batch) == list(range(len(shard)))


@pytest.mark.slow
def test_a_hundred_thousand_sequences_need_hardly_more_than_the_bound() -> None:
    lengths = np.random.default_rng(0).lognormal(6.5, 1, 100_000).astype(int).clip(1, 8192)
    packed = pack(lengths, 8192)
    assert len(packed.micro_batches) <= packed.bound * 1.001
