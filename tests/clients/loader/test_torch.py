"""Batches in PyTorch, where it is installed."""

from itertools import islice
from typing import Any

import numpy as np
import pytest

from lachesis import Group
from lachesis.loader import (
    Loader,
    Pad,
    Padded,
    Source,
    dataset,
    encode,
    prepare_batch,
    prepare_observation,
    stack,
    to_device,
)
from tests.clients.loader.fetching import sample

torch = pytest.importorskip("torch", reason="PyTorch is not installed (`pip install torch`)")
load = pytest.importorskip("safetensors.torch").load

TIME, WIDTH = 5, 3


def fragment(n: int) -> dict[str, Any]:
    return {
        "obs": {"image": np.full((TIME, 4, 4), n, np.uint8), "state": np.full((TIME, WIDTH), n, np.float32)},
        "in_state": [np.full(2, n, np.float32), {"memory": np.full((1, 2), n, np.float32)}],
        "action": {"camera": np.full((TIME, 2), n), "buttons": np.full(TIME, n)},
        "first": np.arange(TIME) == n,
        "reward": np.zeros(TIME),
    }


def loader_of(samples: int = 20, **options: Any) -> Loader[int]:
    return Loader(Source(range(samples), sample), 4, ragged=Pad(-1), **options)


def torch_loader(loader: Loader[int], workers: int, method: str | None = None) -> Any:
    return torch.utils.data.DataLoader(
        dataset(loader), batch_size=None, num_workers=workers, multiprocessing_context=method
    )


def test_arrays_go_to_a_device_wherever_they_are_nested() -> None:
    padded = stack([sample(1), sample(2)], Pad(-1))
    moved = to_device({"p": padded, "l": [np.ones(2), (np.float32(3), torch.ones(1))], "s": "left"}, "cpu")
    assert isinstance(moved["p"]["x"], Padded)
    assert moved["p"]["x"].values.tolist() == [[1, 1, -1], [2, 2, 2]]
    assert moved["p"]["x"].mask.dtype == torch.bool
    assert moved["l"][0].dtype == torch.float64
    assert moved["l"][1][0].item() == 3
    assert moved["s"] == "left"
    assert to_device(padded, "meta", non_blocking=True)["x"].values.device.type == "meta"


def test_on_the_cpu_memory_is_shared_unless_it_is_read_only() -> None:
    array = np.zeros(3)
    tensor = to_device(array, "cpu")
    tensor[0] = 1
    assert array[0] == 1
    array.flags.writeable = False
    to_device(array, "cpu")[1] = 1
    assert array.tolist() == [1, 0, 0]


def test_bits_of_bf16_become_numbers_again() -> None:
    bits = (np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    assert to_device(bits, "cpu").view(torch.bfloat16).tolist() == [1.5, -2.0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_that_numpy_has_no_dtype_for_are_written_as_they_are(dtype: str) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).to(getattr(torch, dtype)).T.requires_grad_(dtype == "bfloat16")
    payload = encode({"x": tensor, "y": [tensor[0, 1], torch.ones(2)]})
    read = load(payload)
    assert {name: array.dtype for name, array in read.items()} == {
        "x": tensor.dtype,
        "y/0": tensor.dtype,
        "y/1": torch.float32,
    }
    assert torch.equal(read["x"].float(), tensor.float())
    assert read["y/0"].item() == 3
    tokens = [[1, 2]]
    packed = Group(tokens, tokens, [1.0], tensors={"x": tensor}).packed(None)
    assert load(packed)["x"].dtype == tensor.dtype


@pytest.mark.parametrize("stacked", [True, False])
def test_fragments_become_what_a_recurrent_policy_takes(stacked: bool) -> None:
    given: Any = [fragment(n) for n in range(4)]
    if stacked:
        (given,) = Loader(Source(range(4), fragment), 4)
    batch = prepare_batch(given, "cpu")
    assert batch.observations["image"].shape == (4, TIME, 4, 4)
    assert batch.observations["state"][:, -1, 0].tolist() == [0, 1, 2, 3]
    assert batch.in_states[0].shape == (4, 2)
    assert batch.in_states[1]["memory"].shape == (4, 1, 2)
    assert batch.actions["camera"].shape == (4, TIME, 2)
    assert batch.firsts.dtype == torch.bool
    assert batch.firsts.tolist() == [[t == n for t in range(TIME)] for n in range(4)]
    assert {tensor.device.type for tensor in prepare_batch(given, "meta").observations.values()} == {"meta"}


def test_a_recurrent_network_takes_them_as_they_are() -> None:
    network = torch.nn.GRU(WIDTH, 2, batch_first=True)
    batch = prepare_batch([fragment(n) for n in range(4)], "cpu")
    out, _ = network(batch.observations["state"], batch.in_states[0][None])
    assert out.shape == (4, TIME, 2)
    following = prepare_observation({"state": np.ones(WIDTH, np.float32)}, "cpu")
    assert network(following["state"])[0].shape == (1, 1, 2)


def test_a_single_observation_becomes_a_batch_of_one_step() -> None:
    single = prepare_observation({"image": np.ones((4, 4), np.uint8), "hp": 0.5}, "cpu")
    assert single["image"].shape == (1, 1, 4, 4)
    assert single["hp"].tolist() == [[0.5]]


def test_fragments_that_do_not_fit_are_refused_with_the_place() -> None:
    with pytest.raises(KeyError, match="firsts"):
        prepare_batch([fragment(0)], "cpu", firsts="firsts")
    short = {**fragment(1), "action": {"camera": np.zeros((2, 2)), "buttons": np.zeros(TIME)}}
    with pytest.raises(ValueError, match=r"action/camera: has shape \(1, 2, 2\), which does not begin with \[1, 5\]"):
        prepare_batch([short], "cpu")
    (ragged,) = Loader(Source(range(2), fragment), 2, ragged={"first": Pad()})
    with pytest.raises(ValueError, match="first: should be an array"):
        prepare_batch(ragged, "cpu")


def test_a_dataset_is_one_of_pytorch_and_gives_batches_of_tensors() -> None:
    batches = list(torch_loader(loader_of(10), 0))
    assert isinstance(dataset(loader_of()), torch.utils.data.IterableDataset)
    assert [batch.keys for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert torch.equal(batches[0].data["x"].lengths, torch.tensor([1, 2, 3, 4]))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_worker_loads_a_part_of_its_own(method: str) -> None:
    loader = torch_loader(loader_of(21, seed=2, rank=1, world_size=2), 2, method)
    keys = [key for batch in loader for key in batch.keys]
    assert sorted(keys) == sorted(loader_of(21, seed=2)._order.samples(0)[1::2].tolist())


@pytest.mark.slow
def test_a_worker_without_a_sample_gives_no_batch() -> None:
    """Not even in a loop without end."""
    batches = list(torch_loader(loader_of(1), 2))
    assert [batch.keys for batch in batches] == [[0]]
    assert list(loader_of(2, epochs=None).split(2, 3)) == []


@pytest.mark.slow
def test_what_fails_in_a_worker_is_raised_in_the_loop_with_its_key() -> None:
    loader = Loader(Source(range(8), sample), 4, ragged={"x": Pad(), "nothing": Pad()})
    with pytest.raises(KeyError, match="no array is called 'nothing'"):
        list(torch_loader(loader, 1))
    with pytest.raises(RuntimeError, match="'a' could not be loaded: TypeError"):
        list(torch_loader(Loader(Source(["a"], sample), 1), 1))


@pytest.mark.slow
def test_workers_learn_an_epoch_before_it_begins() -> None:
    data = dataset(loader_of(12, seed=2))
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2)
    epochs = []
    for epoch in range(2):
        data.set_epoch(epoch)
        epochs.append([key for batch in loader for key in batch.keys])
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(12))
    assert epochs[0] != epochs[1]


@pytest.mark.slow
def test_workers_that_persist_count_epochs_by_themselves() -> None:
    data = dataset(loader_of(12, seed=2))
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, persistent_workers=True)
    epochs = [[batch.epoch for batch in loader] for _ in range(2)]
    assert epochs == [[0] * 4, [1] * 4]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("epochs", [1, None])
def test_workers_that_persist_begin_the_next_epoch_after_a_loop_that_was_left(method: str, epochs: int | None) -> None:
    data = dataset(loader_of(32, seed=2, epochs=epochs))
    loader = torch.utils.data.DataLoader(
        data, batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context=method
    )
    next(iter(loader))
    second = list(islice(loader, 8))
    assert {batch.epoch for batch in second} == {1}
    assert sorted(key for batch in second for key in batch.keys) == list(range(32))
    assert next(iter(loader)).epoch > 1


@pytest.mark.slow
def test_workers_refuse_a_loader_in_the_middle_of_an_epoch() -> None:
    loader = loader_of()
    loader.load_state_dict({**loader.state_dict(), "handed_out": 4})
    with pytest.raises(RuntimeError, match="in the middle of epoch 0"):
        list(torch_loader(loader, 2))


def test_without_workers_a_dataset_is_restored_as_its_loader() -> None:
    data = dataset(loader_of(seed=1))
    whole = [batch.keys for batch in loader_of(seed=1)]
    batches = iter(torch.utils.data.DataLoader(batch_size=None, dataset=data))
    assert [next(batches).keys for _ in range(2)] == whole[:2]
    restored = dataset(loader_of(seed=1))
    restored.load_state_dict(data.state_dict())
    assert [batch.keys for batch in torch.utils.data.DataLoader(batch_size=None, dataset=restored)] == whole[2:]
