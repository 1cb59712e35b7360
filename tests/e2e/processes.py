"""Start processes, wait for what they do, and end them; only ever those started here."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

POLL_S = 0.02
GRACE_S = 30.0
LONG_S = 120.0  # more than a busy machine needs


def wait_until(what: str, condition: Callable[[], bool], within_s: float = LONG_S) -> None:
    """Block until ``condition()`` holds.

    Raises:
        TimeoutError: It did not within ``within_s`` seconds; the message says ``what`` was waited for.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within_s:.0f} s, without success, until {what}")
        time.sleep(POLL_S)


class Process:
    """A child process in a session of its own, whose output goes to ``log``."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._child.poll() is None

    def wait_until(self, what: str, condition: Callable[[], bool], within_s: float = LONG_S) -> None:
        """Block until ``condition()`` holds. Stop the process if that takes too long.

        Raises:
            TimeoutError: It took too long. A note has the end of its output.
            AssertionError: The process ended. The message is the end of its output.
        """
        try:
            wait_until(what, lambda: not self.alive or condition(), within_s)
        except TimeoutError as late:
            self.stop()
            late.add_note(self.last_words())
            raise
        assert self.alive, self.last_words()

    def wait(self, within_s: float = LONG_S) -> int:
        """Wait for its end and give its exit code."""
        return self._child.wait(within_s)

    def stop(self) -> None:
        """Ask it to end; after a grace, make it."""
        if self.alive:
            self._child.terminate()
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self._child.kill()
            self.wait()

    def last_words(self, lines: int = 30) -> str:
        """Give the end of its output, for a failure's message."""
        return f"--- {self.name}\n" + "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def descendants(pid: int) -> list[int]:
    """Give the ids of a process's children, their children and so on, parents first."""
    return [found for child in children(pid) for found in [child, *descendants(child)]]


def children(pid: int) -> list[int]:
    """Give the ids of a process's children."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread may end while we look
            found += map(int, task.read_text().split())
    return found


def is_running(pid: int) -> bool:
    """Say whether a process runs; a zombie, which only waits to be buried, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def command_line(pid: int) -> str:
    """Give a process's command line; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def open_files(pid: int) -> list[Path]:
    """Give what a process has open: files, and sockets as `socket:[…]`. What it closes in the meantime is missing."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(entry.readlink())
    return found


def kill(*pids: int) -> None:
    """End processes as a power cut would, all at once; returns once they are gone, or zombies for a parent to bury."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(f"processes {pids} are dead", lambda: not any(command_line(pid) for pid in pids))
