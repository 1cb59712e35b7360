"""The loop over a loader: what comes, when it is loaded, and that nothing is left of it."""

import asyncio
import gc
import pickle
import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from lachesis.errors import FetchFailed
from lachesis.loader import AsyncSource, LoadedBatch, Loader, Pad, Source, encode
from tests.clients.loader.fetching import Gauge, nothing_left, sample, source_of
from tests.interrupts import interruption

COLOURS = ["sync", "async"]


def keys_of(loader: Loader[int]) -> list[list[int]]:
    return [batch.keys for batch in loader]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_loop_gives_every_sample_of_an_epoch_once_stacked_with_its_keys(colour: str) -> None:
    with nothing_left():
        loader = Loader(source_of(colour, 10), 4, ragged=Pad())
        batches = list(loader)
    assert [batch.keys for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    for batch in batches:
        assert batch.data["key"].tolist() == batch.keys
        assert batch.data["x"].values[:, 0].tolist() == batch.keys
    assert len(loader) == 3
    assert loader.epoch == 1


@pytest.mark.parametrize("colour", COLOURS)
def test_payloads_in_bytes_are_read(colour: str) -> None:
    loader = Loader(source_of(colour, 3, lambda key: encode({"obs": {"image": np.full(2, key)}})), 3)
    (batch,) = loader
    assert batch.data["obs"]["image"].tolist() == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("ordered", [True, False])
def test_samples_that_take_unequally_long_come_in_order_if_asked_to(colour: str, ordered: bool) -> None:
    source = source_of(colour, 40, takes_s=lambda key: random.Random(key).random() / 100)
    loader = Loader(source, 4, seed=3, ordered=ordered, ragged=Pad(), epochs=2)
    order = [key for batch in loader for key in batch.keys]
    expected = [key for epoch in range(2) for key in loader._order.samples(epoch).tolist()]
    if ordered:
        assert order == expected
    else:
        assert order != expected
    assert sorted(order[:40]) == sorted(order[40:]) == list(range(40))


def test_as_they_arrive_a_slow_sample_holds_nobody_up() -> None:
    released = threading.Event()

    def fetch(key: int) -> Any:
        assert key or released.wait(20)
        return sample(key)

    with Loader(Source(range(9), fetch), 2, ordered=False, ragged=Pad()) as loader:
        order = []
        for batch in loader:
            order += batch.keys
            if len(order) == 8:
                released.set()
    assert sorted(order[:8]) == list(range(1, 9))
    assert order[8:] == [0]


@pytest.mark.parametrize(("prefetch", "batch_size"), [(0, 1), (0, 4), (2, 4)])
def test_so_many_loads_are_in_flight_and_never_one_more(prefetch: int, batch_size: int) -> None:
    """(prefetch_batches + 1) * batch_size: that many fetches wait for each other, and no other was begun."""
    most = (prefetch + 1) * batch_size
    gauge = Gauge(most)
    loader = Loader(Source(range(40), gauge), batch_size, prefetch_batches=prefetch, readers=99, ragged=Pad())
    for batch in loader:
        gauge.delivered += len(batch.keys)
    assert gauge.peak == most
    assert gauge.started == 40


def test_readers_limit_how_many_fetches_there_are_at_a_time() -> None:
    active: list[int] = []
    peaks: list[int] = []
    three = threading.Barrier(3)

    def fetch(key: int) -> Any:
        active.append(key)
        peaks.append(len(active))
        three.wait(20)
        active.remove(key)
        three.wait(20)
        return sample(key)

    assert len(keys_of(Loader(Source(range(12), fetch), 4, readers=3, ragged=Pad()))) == 3
    assert max(peaks) == 3


def test_nothing_is_loaded_before_the_first_batch_is_asked_for() -> None:
    gauge = Gauge(1)
    with Loader(Source(range(4), gauge), 2, ragged=Pad()) as loader:
        iter(loader)
        assert gauge.started == 0


@pytest.mark.parametrize("colour", COLOURS)
def test_the_last_batch_of_each_epoch_is_left_out_unloaded_if_asked(colour: str) -> None:
    fetched: list[int] = []

    def fetch(key: int) -> Any:
        fetched.append(key)
        return sample(key)

    loader = Loader(source_of(colour, 10, fetch), 4, seed=0, drop_last=True, epochs=2, ragged=Pad())
    assert [len(keys) for keys in keys_of(loader)] == [4, 4, 4, 4]
    assert len(loader) == 2
    assert len(fetched) == 16


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_batch_and_its_samples_are_released_once_consumed(colour: str, ordered: bool) -> None:
    """By the loader, which is still loading ahead: samples when the batch is made, batches when the caller lets go."""
    made: list[weakref.ref[Any]] = []

    def fetch(key: int) -> Any:
        array = np.full(1, key)
        made.append(weakref.ref(array))
        return {"x": array}

    with Loader(source_of(colour, 64, fetch), 4, prefetch_batches=1, ordered=ordered) as loader:
        batches = iter(loader)
        for _ in range(5):
            batch = next(batches)
            reference = weakref.ref(batch.data["x"])
            keys = set(batch.keys)
            del batch
            gc.collect()
            assert reference() is None
            alive = {int(array[0]) for one in tuple(made) if (array := one()) is not None}
            assert not alive & keys
            assert len(alive) <= 8
        del batches


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_fetch_that_fails_is_raised_with_its_key_and_ends_the_loop(colour: str, ordered: bool) -> None:
    def fetch(key: int) -> Any:
        if key == 6:
            raise OSError("disk on fire")
        return sample(key)

    came: list[list[int]] = []
    with nothing_left():
        loader = Loader(source_of(colour, 40, fetch), 3, ordered=ordered, ragged=Pad())
        with pytest.raises(FetchFailed, match="6 could not be loaded: OSError: disk on fire") as failed:
            came.extend(batch.keys for batch in loader)
    assert failed.value.key == 6
    assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)
    assert isinstance(failed.value.__cause__, OSError)
    assert not any(6 in keys for keys in came)
    assert not ordered or came == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_payload_that_is_damaged_is_named_as_well(colour: str) -> None:
    with pytest.raises(FetchFailed, match="2 could not be loaded: DamagedBlob"):
        list(Loader(source_of(colour, 3, lambda key: encode(sample(key))[key // 2 :]), 3, ragged=Pad()))


def test_what_is_no_source_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"source: should be Source\(keys, fetch\) or another .* not range\(0, 8\)"):
        Loader(range(8), 4)  # type: ignore[arg-type]


def test_samples_that_cannot_be_stacked_are_named_and_end_the_loop() -> None:
    with nothing_left(), pytest.raises(ValueError, match=r"x: 1 has shape \(2,\), 0 has \(1,\)"):
        list(Loader(Source(range(8), sample), 4))


@pytest.mark.parametrize("colour", COLOURS)
def test_leaving_the_loop_ends_all_that_was_started(colour: str) -> None:
    with nothing_left():
        for batch in Loader(source_of(colour, 1000), 4, ragged=Pad()):
            assert batch.keys
            break


@pytest.mark.parametrize("colour", COLOURS)
def test_closing_the_loader_ends_a_loop_that_somebody_still_holds(colour: str) -> None:
    with nothing_left():
        loader = Loader(source_of(colour, 1000), 4, ragged=Pad())
        batches = iter(loader)
        with loader:
            next(batches)
            with pytest.raises(RuntimeError, match="is running"):
                iter(loader)
            with pytest.raises(RuntimeError, match="is running"):
                loader.load_state_dict(loader.state_dict())
            with pytest.raises(RuntimeError, match="is running"):
                loader.set_epoch(3)
        assert list(batches) == []
        loader.close()
    assert next(iter(loader)).keys == [4, 5, 6, 7]  # continues where it stopped
    loader.close()


@pytest.mark.parametrize("colour", COLOURS)
def test_an_error_in_the_loop_leaves_nothing_behind(colour: str) -> None:
    def train(loader: Loader[int]) -> None:
        with loader:
            for batch in loader:
                _ = 1 / batch.keys[0]

    with nothing_left(), pytest.raises(ZeroDivisionError):
        train(Loader(source_of(colour, 1000), 4, ragged=Pad()))


@pytest.mark.parametrize("colour", COLOURS)
def test_an_interrupt_while_waiting_ends_all_that_was_started(colour: str) -> None:
    """As by Ctrl-C, while no fetch gets anywhere."""
    begun, released, all_there = threading.Event(), threading.Event(), threading.Barrier(4)

    def hang(key: int) -> Any:
        if key < 4:  # all threads are there before the interrupt
            all_there.wait(20)
        else:
            begun.set()
            assert released.wait(20)
        return sample(key)

    async def hang_async(key: int) -> Any:
        begun.set()
        await asyncio.Event().wait()

    def interrupt_it() -> None:
        assert begun.wait(20)
        interrupt()
        released.set()

    source = Source(range(20), hang) if colour == "sync" else AsyncSource.of(range(20), hang_async)
    with nothing_left(), interruption() as interrupt:
        interrupting = threading.Thread(target=interrupt_it)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            list(Loader(source, 4, readers=4, ragged=Pad()))
        interrupting.join()


def test_ranks_load_disjoint_samples() -> None:
    ranks = [
        Loader(Source(range(22), sample), 2, seed=5, rank=rank, world_size=4, equal_ranks=True, ragged=Pad())
        for rank in range(4)
    ]
    loaded = [[key for keys in keys_of(rank) for key in keys] for rank in ranks]
    assert [len(keys) for keys in loaded] == [5] * 4
    assert len(set().union(*loaded)) == 20


def test_a_loop_without_end_goes_on_through_epochs() -> None:
    loader = Loader(Source(range(3), sample), 2, seed=0, epochs=None, ragged=Pad())
    epochs = []
    for batch in loader:
        epochs.append(batch.epoch)
        if len(epochs) == 7:
            break
    assert epochs == [0, 0, 1, 1, 2, 2, 3]


def test_a_loader_that_has_run_can_be_pickled_and_continues_there() -> None:
    """As workers that are spawned get it, also while its loop runs."""
    loader = Loader(Source(range(8), sample), 2, ragged=Pad())
    loop = iter(loader)
    assert next(loop).keys == [0, 1]
    sent = pickle.loads(pickle.dumps(loader))
    loader.close()
    assert keys_of(sent) == keys_of(pickle.loads(pickle.dumps(loader))) == [[2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"readers": 0},
        {"prefetch_batches": -1},
        {"epochs": 0},
        {"seed": -1},
        {"batch_size": 5, "drop_last": True},
        {"source": Source([], sample)},
        {"rank": 4, "world_size": 4},
        {"world_size": 5, "equal_ranks": True},
    ],
)
def test_settings_that_can_give_no_batch_are_refused_at_once(wrong: dict[str, Any]) -> None:
    """A loop without a single turn looks like one that has ended."""
    with pytest.raises(ValueError, match=r"^\w+: should be [01] or more, not|^no batch: |there is no rank"):
        Loader(**{"source": Source(range(4), sample), "batch_size": 2, **wrong})


def test_a_progress_bar_counts_samples(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich", reason="rich is not installed: there is no progress bar")
    loader = Loader(Source(range(10), sample), 4, progress=True, ragged=Pad())
    assert all(isinstance(batch, LoadedBatch) for batch in loader)
    assert "10/10" in capsys.readouterr().err


def test_without_rich_a_progress_bar_is_refused_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rich.progress", None)
    with pytest.raises(ModuleNotFoundError, match="pip install rich"):
        Loader(Source(range(10), sample), 4, progress=True)
