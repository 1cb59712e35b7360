"""What a training loop iterates over: samples fetched in parallel, ahead of the step, stacked to batches.

`Loader` takes a `Source` (a function that is called in threads) or an `AsyncSource` (a coroutine function);
`episode_files` makes one of a shard manifest. `to_device`, `prepare_batch`, `prepare_observation` and `dataset` need
PyTorch, which is imported when they are called.
"""

from lachesis.loader._loader import LoadedBatch, Loader
from lachesis.loader.nested import decode, encode
from lachesis.loader.sources import AsyncSource, Episode, Source, episode_files, read_manifest
from lachesis.loader.stacking import Pack, Packed, Pad, Padded, stack
from lachesis.loader.tensors import Recurrent, prepare_batch, prepare_observation, to_device
from lachesis.loader.torch_dataset import dataset

__all__ = [
    "AsyncSource",
    "Episode",
    "LoadedBatch",
    "Loader",
    "Pack",
    "Packed",
    "Pad",
    "Padded",
    "Recurrent",
    "Source",
    "dataset",
    "decode",
    "encode",
    "episode_files",
    "prepare_batch",
    "prepare_observation",
    "read_manifest",
    "stack",
    "to_device",
]
