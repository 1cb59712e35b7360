"""Find, open and read the files of a dataset within bounds. Messages name them as their owner knows them."""

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

from app.datasets.episodes import Progress, shown
from lachesis.wire.errors import DatasetNotFound, InvalidDataset

T = TypeVar("T")
U = TypeVar("U")

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_MAX_JSON_BYTES = 16 * 1024 * 1024
_CPUS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a dataset's files.

    Attributes:
        path: The path of the folder, without links.
        name: Its name in messages.
        within: The folder that all files must be in, links resolved; None if links may lead anywhere.
    """

    path: Path
    name: str
    within: Path | None = None

    def called(self, file: str) -> str:
        """Return the name of a file of this folder in messages."""
        return str(PurePosixPath(self.name, file))

    def holds(self, file: str) -> bool:
        """Return whether there is a file of this name, or a link to one.

        Raises:
            InvalidDataset: This user may not look into the folder.
        """
        try:
            return stat.S_ISREG((self.path / file).stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:  # `is_file` hides it from Python 3.14 on
            raise InvalidDataset(f"{self.called(file)} cannot be read: {error.strerror}") from error

    @contextlib.contextmanager
    def opened(self, file: str) -> Iterator[int]:
        """Open a file for reading, as a descriptor. Errors while it is open also name the file.

        Raises:
            InvalidDataset: It is missing, not a regular file, outside of `within`, or cannot be read.
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
        """Open the file that a name leads to, if it is within bounds. Never wait for the other end of a pipe."""
        path = os.path.join(self.path, file)
        if self.within is None:
            return os.open(path, _READ)
        real = os.path.realpath(path, strict=True)
        if not Path(real).is_relative_to(self.within):
            raise InvalidDataset(f"{self.called(file)} is a link that leads out of the folder of datasets")
        return os.open(real, _READ | os.O_NOFOLLOW)

    def json(self, file: str) -> dict[str, Any]:
        """Return the object in a small JSON file.

        Raises:
            InvalidDataset: It cannot be read, is larger than 16 MiB, or is not a JSON object.
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
        """Return the files with these suffixes below a folder, by name.

        Raises:
            InvalidDataset: A folder cannot be read, or is a link, which could lead in circles.
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
    """Return the folder, or the file in a folder, that a path names.

    Args:
        path: The path as its user writes it; relative to ``within`` if that is given.
        within: The folder that it must be in.

    Returns:
        The folder, and the file's name or None.

    Raises:
        DatasetNotFound: The path does not exist, or is outside of ``within``.
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
    # Use the link's own name: in download caches the target is a hash without a suffix.
    return Folder(named.parent.resolve(), str(path.parent), within), named.name


def pieces(items: list[T], size: int) -> Iterator[list[T]]:
    """Cut a list into pieces of ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))


def in_parallel(
    read: Callable[[T], U], items: Sequence[T], weights: Sequence[int], progress: Progress, *, processes: bool = False
) -> list[U]:
    """Read many items at a time.

    Args:
        read: Reads one item. With ``processes`` it must be importable, and its argument and result are copied.
        items: The items to read.
        weights: The weight of each item, for the progress.
        progress: Called after each item, in order.
        processes: Whether to read in processes. Use it for many small files: reading these is mostly Python code, so
            threads would wait for each other. A process that may have no children reads in threads.

    Returns:
        The results in the order of ``items``. The first error in that order is raised, and no more items are begun.
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
    return ThreadPoolExecutor(4 * _CPUS, "datasets")  # they mostly wait for disks
