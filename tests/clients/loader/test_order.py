"""Which sample comes when."""

import json
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lachesis.loader._order import Order, Share


def order_of(samples: int, seed: int | None = 0, rank: int = 0, world_size: int = 1, equal: bool = False) -> Order:
    return Order(samples, seed, Share.of(samples, rank, world_size, equal=equal))


def test_every_epoch_is_all_samples_in_an_order_of_its_own() -> None:
    order = order_of(100)
    epochs = [order.samples(epoch).tolist() for epoch in range(3)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0] != list(range(100))
    assert order_of(100, seed=1).samples(0).tolist() != epochs[0]


def test_without_a_seed_samples_come_in_the_order_of_the_source() -> None:
    assert order_of(5, seed=None).samples(3).tolist() == [0, 1, 2, 3, 4]


def test_a_shuffle_is_the_same_on_every_machine_and_with_every_numpy() -> None:
    """A checkpoint says how far a loop was in it, so it must never change."""
    assert order_of(10, seed=7).samples(0).tolist() == [6, 3, 4, 9, 0, 2, 8, 7, 5, 1]
    assert order_of(10, seed=7).samples(1).tolist() == [1, 3, 2, 7, 8, 4, 5, 9, 0, 6]


@given(st.integers(0, 60), st.integers(1, 7), st.integers(1, 4), st.booleans())
def test_shares_and_their_parts_are_disjoint_and_leave_nothing_out(
    samples: int, world_size: int, workers: int, equal: bool
) -> None:
    ranks = [order_of(samples, 3, rank, world_size, equal) for rank in range(world_size)]
    loaded = [
        [worker.samples(2).tolist() for worker in map(rank.split, range(workers), [workers] * workers)]
        for rank in ranks
    ]
    for rank, parts in zip(ranks, loaded, strict=True):
        assert Counter(chain.from_iterable(parts)) == Counter(rank.samples(2).tolist())
        assert len(rank) == len(rank.samples(2))
    times = Counter(chain.from_iterable(chain.from_iterable(loaded)))
    assert set(times.values()) <= {1}
    sizes = {len(rank) for rank in ranks}
    if equal:
        assert sizes == {samples // world_size}
    else:
        assert len(times) == samples
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("rank", "world_size"), [(-1, 2), (2, 2), (0, 0)])
def test_a_rank_that_there_is_not_is_refused(rank: int, world_size: int) -> None:
    with pytest.raises(ValueError, match=f"no rank {rank} of {world_size}"):
        order_of(5, rank=rank, world_size=world_size)
    with pytest.raises(ValueError, match=f"no part {rank} of {world_size}"):
        order_of(5).split(rank, world_size)


@given(st.data())
def test_what_was_handed_out_in_whatever_order_is_what_is_not_left(data: st.DataObject) -> None:
    samples = data.draw(st.integers(1, 30))
    shuffled = data.draw(st.permutations(range(samples)))
    handed_out = shuffled[: data.draw(st.integers(0, samples))]
    order = order_of(samples)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(handed_out)), max_size=3)))
    for first, end in zip([0, *cuts], [*cuts, len(handed_out)], strict=True):
        order.hand_out(handed_out[first:end])
    restored = order_of(samples)
    restored.load_state_dict(json.loads(json.dumps(order.state_dict())))
    for one in (order, restored):
        assert one.places_left(0).tolist() == sorted(set(range(samples)) - set(handed_out))
        assert one.is_at_start == (not handed_out)
        assert one.places_left(1).tolist() == list(range(samples))


def test_the_state_is_small_where_samples_are_handed_out_in_order() -> None:
    order = order_of(100_000)
    order.hand_out(range(90_000))
    assert len(json.dumps(order.state_dict())) < 250


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (order_of(9), "samples was 8, is 9"),
        (order_of(8, seed=1), "seed was 0, is 1"),
        (order_of(8, seed=None), "seed was 0, is None"),
        (order_of(8, rank=1, world_size=2), "share_start was 0, is 1; share_step was 1, is 2"),
    ],
)
def test_the_state_of_another_order_is_refused_and_changes_nothing(other: Order, differs: str) -> None:
    order = order_of(8)
    order.hand_out([0, 1, 2])
    with pytest.raises(ValueError, match=differs):
        other.load_state_dict(order.state_dict())
    assert other.epoch == 0
    assert np.array_equal(other.places_left(0), np.arange(len(other)))


def test_another_epoch_begins_at_its_beginning() -> None:
    order = order_of(4)
    order.hand_out([0, 3])
    order.go_to(5)
    assert order.epoch == 5
    assert order.places_left(5).tolist() == [0, 1, 2, 3]


def test_the_parts_of_a_share_are_at_its_epoch() -> None:
    """Workers of a `torch` loader have parts, which would otherwise all begin with epoch 0."""
    order = order_of(8)
    order.go_to(3)
    assert [order.split(part, 2).epoch for part in range(2)] == [3, 3]
