"""Let the API processes of a service commit in turn, so that submissions to a process that waits meet.

The processes share a file, and lock it. If the process that holds the lock dies, the system releases it. Only how many
submissions meet depends on the lock. So if the system refuses it, the processes go on without it.
"""

import asyncio
import fcntl
import logging
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

PATH_VARIABLE = "LACHESIS_COMMIT_LOCK"
"""The environment variable that tells API processes the path of their file."""

log = logging.getLogger("lachesis.commits")


class CommitLock:
    """A lock that one process holds at a time. In each process one task may ask for it at a time.

    Args:
        path: The file that the processes share.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        self._thread = ThreadPoolExecutor(1, "commit-lock")
        self._request: asyncio.Future[None] | None = None
        self._is_wanted = False
        self._is_refused = False

    @classmethod
    def of_service(cls) -> "CommitLock | None":
        """Open the lock that the supervisor made. Return None if this process commits alone."""
        path = os.environ.get(PATH_VARIABLE)
        return cls(path) if path else None

    async def acquire(self, longest_wait_s: float) -> None:
        """Wait for the lock, but no longer than this. If the system refuses the lock, do not wait."""
        if self._request is None:
            if self._take_if_free() or self._is_refused:
                return
            loop = asyncio.get_running_loop()
            try:
                self._request = loop.run_in_executor(self._thread, fcntl.flock, self._file, fcntl.LOCK_EX)
            except RuntimeError as error:  # no thread can start
                self._refused(error)
                return
            self._request.add_done_callback(self._granted)
        self._is_wanted = True
        try:
            await asyncio.wait([self._request], timeout=longest_wait_s)
        finally:
            self._is_wanted = False

    def release(self) -> None:
        """Let another process have the lock, if this one holds it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError as error:
            self._refused(error)

    def _take_if_free(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            self._refused(error)
            return False
        return True

    def _granted(self, request: asyncio.Future[None]) -> None:
        self._request = None
        if isinstance(error := request.exception(), OSError):
            self._refused(error)
        elif not self._is_wanted:  # the task that asked has gone on
            self.release()

    def _refused(self, error: Exception) -> None:
        if not self._is_refused:
            log.warning("the system refuses the lock for commits: API processes no longer commit in turn: %s", error)
        self._is_refused = True


@contextmanager
def shared_lock() -> Iterator[None]:
    """Make the file of the lock for the processes that start until the block ends.

    Raises:
        OSError: There is no folder for temporary files, or its file system has no locks.
    """
    with tempfile.NamedTemporaryFile(prefix="lachesis-commits-", delete=False) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            fcntl.flock(file, fcntl.LOCK_UN)
            os.environ[PATH_VARIABLE] = file.name
            yield
        finally:
            os.environ.pop(PATH_VARIABLE, None)
            Path(file.name).unlink(missing_ok=True)  # a system may remove old temporary files
