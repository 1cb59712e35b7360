"""The files of a dataset: found, opened and read within bounds, and named as their owner knows them."""

import contextlib
import multiprocessing
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import orjson

from app.core.errors import DatasetNotFound, InvalidDataset
from app.datasets.episodes import Progress, shown

T = TypeVar("T")
U = TypeVar("U")

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_MAX_JSON_BYTES = 16 * 1024 * 1024
_CPUS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder a dataset's files are in.

    Attributes:
        path: The folder, with no links in it.
        name: What people call it.
        within: No file may be outside of this folder, through links either; None: links may lead anywhere.
    """

    path: Path
    name: str
    within: Path | None = None

    def called(self, file: str) -> str:
        """What people call a file of this folder."""
        return str(PurePosixPath(self.name, file))

    def holds(self, file: str) -> bool:
        """Whether there is a file (or a link to one) of this name."""
        return (self.path / file).is_file()

    @contextlib.contextmanager
    def opened(self, file: str) -> Iterator[int]:
        """Open a file for reading, as a descriptor. What goes wrong with it while it is open is told by its name too.

        Raises:
            InvalidDataset: It is not there, no regular file, outside of `within`, or cannot be read.
        """
        try:
            descriptor = self._open(file)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise InvalidDataset(f"{self.called(file)} is not a file")
                yield descriptor
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise InvalidDataset(f"{self.called(file)} is missing") from None
        except OSError as error:
            raise InvalidDataset(f"{self.called(file)} cannot be read: {error.strerror or error}") from error

    def _open(self, file: str) -> int:
        """Open what a name leads to, if that is within bounds. Nobody waits for the other end of a pipe."""
        path = os.path.join(self.path, file)
        if self.within is None:
            return os.open(path, _READ)
        real = os.path.realpath(path, strict=True)
        if not Path(real).is_relative_to(self.within):
            raise InvalidDataset(f"{self.called(file)} is a link that leads out of the folder of datasets")
        return os.open(real, _READ | os.O_NOFOLLOW)

    def json(self, file: str) -> dict[str, Any]:
        """Read a small JSON file that holds an object.

        Raises:
            InvalidDataset: It cannot be read, is larger than 16 MiB, or not a JSON object.
        """
        with self.opened(file) as descriptor, open(descriptor, "rb", closefd=False) as stream:
            text = stream.read(_MAX_JSON_BYTES + 1)
        if len(text) > _MAX_JSON_BYTES:
            raise InvalidDataset(f"{self.called(file)} is larger than {_MAX_JSON_BYTES} bytes")
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise InvalidDataset(f"{self.called(file)} is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise InvalidDataset(f"{self.called(file)} is not a JSON object but {shown(value)}")
        return value

    def find(self, suffixes: tuple[str, ...], under: str = "") -> list[str]:
        """List the files of some kinds below a folder, by name.

        Raises:
            InvalidDataset: A folder cannot be read, or is a link: it could lead in circles.
        """
        found: list[str] = []
        folders = [under]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(self.path / folder) as entries:
                    for entry in entries:
                        name = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(name)
                        elif entry.name.endswith(suffixes):
                            found.append(name)
                        elif entry.is_symlink() and entry.is_dir():
                            raise InvalidDataset(f"{self.called(name)} is a link to a folder, which is not followed")
            except OSError as error:
                raise InvalidDataset(f"{self.called(folder)} cannot be read: {error.strerror}") from error
        return sorted(found)


def located(path: Path, within: Path | None = None) -> tuple[Folder, str | None]:
    """Find what a path names: a folder, or a file in one.

    Args:
        path: As its user writes it; relative to ``within`` if that is given.
        within: Where it must lie.

    Returns:
        The folder, and the file's name or None.

    Raises:
        DatasetNotFound: There is nothing, or only something outside of ``within``.
    """
    named = path if within is None else within / path
    try:
        real = named.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise DatasetNotFound(f"no dataset at {shown(str(path))}") from None
    if within is not None and not real.is_relative_to(within):
        raise DatasetNotFound(f"no dataset at {shown(str(path))}")
    if real.is_dir():
        return Folder(real, str(path), within), None
    # By its own name, whatever it is a link to: in the caches of downloads that is a hash, without a suffix.
    return Folder(named.parent.resolve(), str(path.parent), within), named.name


def pieces(items: list[T], size: int) -> Iterator[list[T]]:
    """Cut a list into pieces of ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))


def in_parallel(
    read: Callable[[T], U], items: Sequence[T], weights: Sequence[int], progress: Progress, *, processes: bool = False
) -> list[U]:
    """Read many pieces at a time.

    Args:
        read: Reads one; with ``processes`` it must be importable, and what it takes and gives is copied.
        items: What is to be read.
        weights: Of each item, for the progress.
        progress: Told after each piece, in order.
        processes: Whether to read in processes: for many small files, whose reading is so much Python that threads
            would stand in each other's way. A process that may have no children reads in threads.

    Returns:
        What was read, in the order of ``items``. The first error, in that order, is raised; the rest is not begun.
    """
    total, done = sum(weights), 0
    results: list[U] = []
    with _pool(processes and not multiprocessing.current_process().daemon) as pool:
        try:
            for weight, result in zip(weights, pool.map(read, items), strict=True):
                results.append(result)
                done += weight
                progress(done, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def _pool(processes: bool) -> Executor:
    if processes:  # spawned: a fork would copy locks that other threads hold
        return ProcessPoolExecutor(_CPUS, multiprocessing.get_context("spawn"))
    return ThreadPoolExecutor(4 * _CPUS, "datasets")  # they wait for disks more than they compute
