"""A loader as an ``IterableDataset`` of PyTorch, which is imported late."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from lachesis.loader._loader import LoadedBatch, Loader

_CLASS = "LoaderDataset"


def dataset(loader: Loader[Any]) -> Any:
    """Return a ``torch.utils.data.IterableDataset`` of the loader's batches.

    ``DataLoader(dataset(loader), batch_size=None, num_workers=2)`` returns a `LoadedBatch` of tensors each time. Each
    worker loads its own part of the samples, with as many readers as the loader has, and forms its own batches. Workers
    that are not persistent start again with every loop over the DataLoader: call `set_epoch` before each loop. Those
    that persist begin the next epoch with each loop: if a loop is left early, the rest of its epoch is skipped. Without
    workers, the dataset can be saved and restored as the loader is. With ``drop_last``, each worker leaves out its own
    last batch.

    The loop raises RuntimeError if workers get a loader in the middle of an epoch, and ValueError if none has a batch.

    Raises:
        ModuleNotFoundError: PyTorch is not installed.
    """
    return _dataset_class()(loader)


class _Batches:
    """The methods of the dataset; its class has ``IterableDataset`` as a second base."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader
        self._part: Loader[Any] | None = None  # kept: a persistent worker continues with the next epoch
        self._first_epoch = 0  # of the worker's last loop

    def __iter__(self) -> Iterator[LoadedBatch[Any]]:
        worker = import_module("torch.utils.data").get_worker_info()
        if worker is None:
            return iter(self._loader)
        part = self._part
        if part is None:
            self._part = part = self._loader.split(worker.id, worker.num_workers)
        else:
            part.close()  # PyTorch still has the last loop, which may have been left early
            part.set_epoch(part.epoch + 1 if part.epochs is None else self._first_epoch + part.epochs)
        self._first_epoch = part.epoch
        return iter(part)

    def set_epoch(self, epoch: int) -> None:
        """See `Loader.set_epoch`. It does not reach persistent workers, which count epochs themselves."""
        self._loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """See `Loader.state_dict`."""
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Loader.load_state_dict`."""
        self._loader.load_state_dict(state)


@cache
def _dataset_class() -> Any:
    base = import_module("torch.utils.data").IterableDataset
    return type(_CLASS, (_Batches, base), {"__module__": __name__, "__doc__": "Batches of a loader."})


def __getattr__(name: str) -> Any:
    """Find the class by its name, as workers that are spawned do."""
    if name == _CLASS:
        return _dataset_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
