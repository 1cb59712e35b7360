"""Saved and restored, a loader continues the same sequence."""

import json
from typing import Any

import numpy as np
import pytest

from lachesis.errors import FetchFailed
from lachesis.loader import Loader, Pad, Source
from tests.clients.loader.fetching import sample, source_of

SLOW = 7


def takes_s(key: int) -> float:
    """The fourth sample of the first shuffle is much slower than all others."""
    return 0.015 if key == SLOW else key % 3 / 1000


def loader_of(colour: str = "sync", **changed: Any) -> Loader[int]:
    options: dict[str, Any] = {"seed": 11, "ragged": Pad(), "epochs": 3, **changed}
    return Loader(source_of(colour, 23, takes_s=takes_s), options.pop("batch_size", 4), **options)


def saved(state: dict[str, Any]) -> dict[str, Any]:
    """What comes back from a file."""
    return json.loads(json.dumps(state))


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("drop_last", [True, False])
def test_restored_it_continues_the_same_sequence(colour: str, drop_last: bool) -> None:
    """From after any batch: within epochs and between them, while others are being loaded."""
    loader = loader_of(colour, drop_last=drop_last)
    states, sequence = [saved(loader.state_dict())], []
    for batch in loader:
        states.append(saved(loader.state_dict()))
        sequence.append((batch.epoch, batch.keys))
    assert len(sequence) == 3 * len(loader)
    for done, state in enumerate(states[:-1]):
        restored = loader_of(colour, drop_last=drop_last, epochs=3 - state["epoch"])
        restored.load_state_dict(state)
        assert [(batch.epoch, batch.keys) for batch in restored] == sequence[done:]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_restored_where_samples_come_as_they_arrive_each_that_is_left_comes_once(colour: str) -> None:
    loader = loader_of(colour, ordered=False, epochs=1)
    states, sequence = [saved(loader.state_dict())], []
    for batch in loader:
        states.append(saved(loader.state_dict()))
        sequence.append(batch.keys)
    assert any(state["handed_out_beyond"] for state in states)
    for done, state in enumerate(states[:-1]):
        restored = loader_of(colour, ordered=False, epochs=1)
        restored.load_state_dict(state)
        left = sorted(key for keys in sequence[done:] for key in keys)
        assert sorted(key for batch in restored for key in batch.keys) == left


def test_a_loop_that_was_left_is_continued_by_the_next() -> None:
    whole = [key for batch in loader_of(epochs=2) for key in batch.keys]
    loader, came = loader_of(epochs=1), []
    for _ in range(4):
        for turn, batch in enumerate(loader):
            came += batch.keys
            if turn == 1:
                break
    assert came == whole[: len(came)]
    assert len(came) == 23 + 8


def test_a_batch_that_could_not_be_made_comes_again() -> None:
    broken = {"is": True}

    def fetch(key: int) -> Any:
        if key == 5 and broken["is"]:
            raise OSError("not now")
        return sample(key)

    loader = Loader(Source(range(12), fetch), 4, ragged=Pad())
    with pytest.raises(FetchFailed, match="5 could not be loaded: OSError: not now"):
        list(loader)
    broken["is"] = False
    assert [batch.keys for batch in loader] == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_another_batch_size_continues_the_same_order_of_samples() -> None:
    loader = loader_of()
    whole = [key for batch in loader_of(epochs=1) for key in batch.keys]
    next(iter(loader))
    for drop_last in (False, True):
        other = loader_of(batch_size=6, drop_last=drop_last, epochs=1)
        other.load_state_dict(loader.state_dict())
        rest = whole[4:] if not drop_last else whole[4:22]
        assert [key for batch in other for key in batch.keys] == rest
        assert other.epoch == 1


def test_what_is_left_of_an_epoch_and_makes_no_batch_is_passed_over() -> None:
    loader = loader_of()
    for batch in loader:
        if batch.epoch == 0 and len(batch.keys) == 4 and loader.state_dict()["handed_out"] == 20:
            break
    other = loader_of(batch_size=6, drop_last=True, epochs=2)
    other.load_state_dict(loader.state_dict())
    assert [batch.epoch for batch in other] == [1, 1, 1]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 12}, "seed was 11, is 12"),
        ({"rank": 0, "world_size": 2}, "share_step was 1, is 2"),
    ],
)
def test_the_state_of_another_order_is_refused(other: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loader_of(**other).load_state_dict(loader_of().state_dict())


def test_the_state_of_other_keys_is_refused() -> None:
    """Otherwise a loader of another dataset of the same size would continue in the wrong place, without an error."""
    state = Loader(Source(["a", "b"], sample), 1).state_dict()
    with pytest.raises(ValueError, match="other keys"):
        Loader(Source(["a", "c"], sample), 1).load_state_dict(state)


def test_what_is_no_state_is_refused_by_what_it_has_not() -> None:
    with pytest.raises(ValueError, match="not a state of a loader: it has no 'epoch'"):
        loader_of().load_state_dict({})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epoch", value) for value in (None, "1", 1.5, -1)),
        *(("handed_out", value) for value in (None, [4], -1, 24)),
        *(("handed_out_beyond", value) for value in (None, 6, "67", ["6"], [4], [23], [6, None])),
        *(("order", value) for value in (None, 5, ["seed"])),
    ],
)
def test_a_damaged_state_is_refused_by_what_is_wrong_with_it(name: str, value: Any) -> None:
    loader = loader_of()
    good = {**loader.state_dict(), "epoch": 1, "handed_out": 4, "handed_out_beyond": [6, 22]}
    loader.load_state_dict(good)
    with pytest.raises(ValueError, match=f"not a state of a loader: {name} .*Pass what state_dict"):
        loader.load_state_dict({**good, name: value})
    assert loader.state_dict() == good


@pytest.mark.parametrize("state", [None, "state", ["epoch"]])
def test_what_has_no_names_is_not_a_state(state: Any) -> None:
    with pytest.raises(ValueError, match="not a state of a loader: it is "):
        loader_of().load_state_dict(state)


def test_an_epoch_can_be_gone_to() -> None:
    loader, there = loader_of(epochs=2), loader_of(epochs=1)
    there.set_epoch(1)
    assert [batch.keys for batch in there] == [batch.keys for batch in loader if batch.epoch == 1]


def test_an_epoch_below_zero_is_refused() -> None:
    loader = loader_of()
    with pytest.raises(ValueError, match="epoch: should be 0 or more, not -1"):
        loader.set_epoch(-1)
    assert loader.epoch == 0


def test_a_state_with_numbers_of_numpy_can_be_written_as_json() -> None:
    numbers = {"seed": np.int64(11), "rank": np.int32(1), "world_size": np.uint8(2)}
    loader, same = loader_of(**numbers), loader_of(rank=1, world_size=2)
    for one in (loader, same):
        one.set_epoch(np.int64(1))
        next(iter(one))
    assert saved(loader.state_dict()) == same.state_dict()


def test_workers_get_no_part_of_a_loader_in_the_middle_of_an_epoch() -> None:
    """They would load samples again that the saved state has."""
    loader, restored = loader_of(), loader_of()
    next(iter(loader))
    restored.load_state_dict(saved(loader.state_dict()))
    with pytest.raises(RuntimeError, match="in the middle of epoch 0"):
        restored.split(0, 2)
    restored.set_epoch(1)
    assert restored.split(0, 2).epoch == 1


def test_parts_that_have_no_batch_are_refused_if_all_are_so() -> None:
    loader = loader_of(batch_size=8, drop_last=True)
    assert [len(loader.split(part, 3)) for part in range(3)] == [1, 1, 0]
    with pytest.raises(ValueError, match="each of 3 workers has at most 8 samples"):
        loader_of(batch_size=9, drop_last=True).split(0, 3)
