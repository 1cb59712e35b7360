"""An advisory lock on a directory: one process at a time writes into it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, nothing keeps a second process out
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
"""The file that the lock is on. It stays behind if the process is killed, and then locks nothing."""


class InUse(Exception):
    """Another process has the lock."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock on a directory. It is made if it is missing.

    The kernel releases the lock when the process ends, however it ends.

    Raises:
        InUse: Another process has the lock.
        OSError: The directory cannot be made or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK_FILE
    file = _lock(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is locked: nobody else can have begun to use it
        os.close(file)


def _lock(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if fcntl is None:
                return file
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUse from None
            except OSError:  # some network file systems have no locks
                return file
            if _is_at(file, path):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # its owner removed it between the two calls: it guards nothing any more


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
