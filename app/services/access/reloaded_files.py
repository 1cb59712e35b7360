"""Files that the service reads again when they change."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from lachesis.wire.errors import StoreMisconfigured

T = TypeVar("T")

log = logging.getLogger("lachesis.access")


class ReloadedFiles(Generic[T]):
    """What was read from files. It is read again when a file has changed.

    Args:
        paths: The files. Links are followed, so a mounted secret may be replaced as a whole.
        load: Reads all files. It raises StoreMisconfigured if they are wrong.

    Raises:
        StoreMisconfigured: A file is missing or wrong.
    """

    def __init__(self, paths: Sequence[Path], load: Callable[[], T]) -> None:
        self._paths = tuple(paths)
        self._load = load
        self._seen = self._versions()  # before the files are read: a later change is a change
        self._value = load()

    def get(self) -> T:
        """Return what the files say now. While they are missing or wrong, return what they said before."""
        versions = self._versions()
        if versions != self._seen:
            self._seen = versions
            names = ", ".join(map(str, self._paths))
            try:
                self._value = self._load()
                log.info("files read again: %s", names)
            except StoreMisconfigured as error:
                log.error("changed files are wrong, the former ones stay in use: %s", error.detail)
        return self._value

    def _versions(self) -> list[tuple[int, ...]]:
        return [_version(path) for path in self._paths]


def _version(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
