"""A loader as an ``IterableDataset`` of PyTorch, which is imported late."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from lachesis.loader._loader import Batch, Loader

_CLASS = "LoaderDataset"


def dataset(loader: Loader[Any]) -> Any:
    """Return a ``torch.utils.data.IterableDataset`` of the loader's batches.

    ``DataLoader(dataset(loader), batch_size=None, num_workers=2)`` gives `Batch`es of tensors. Each of its workers
    loads a part of its own, with all readers of the loader and batches by itself. The workers begin anew with
    every loop over a DataLoader, unless they are persistent: so say `set_epoch` before each. Without workers it can be
    saved and restored as the loader is.

    Raises:
        ModuleNotFoundError: PyTorch is not installed.
    """
    return _dataset_class()(loader)


class _Batches:
    """What the dataset does; its class has ``IterableDataset`` as a base, too."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader
        self._part: Loader[Any] | None = None

    def __iter__(self) -> Iterator[Batch[Any]]:
        worker = import_module("torch.utils.data").get_worker_info()
        if worker is None:
            return iter(self._loader)
        if self._part is None:  # kept, so that a persistent worker goes on with the next epoch
            self._part = self._loader.split(worker.id, worker.num_workers)
        return iter(self._part)

    def set_epoch(self, epoch: int) -> None:
        """See `Loader.set_epoch`; workers that persist do not hear of it, and count epochs by themselves."""
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
