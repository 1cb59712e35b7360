"""Start processes, start again those that die, and end them. It ends only what it started."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
# On Linux, processes end with their supervisor, also if it is killed.
TIED = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
PAUSE_S, GRACE_S, MAX_FAILURES = 0.1, 30.0, 5


class StopSignals:
    """Ctrl-C, SIGTERM and SIGHUP, which take effect where the program pauses, and never while it starts a process."""

    def __init__(self) -> None:
        self._received = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)

    def pause(self) -> None:
        """Sleep for a moment. Raises `KeyboardInterrupt` after a signal."""
        time.sleep(PAUSE_S)
        if self._received:
            raise KeyboardInterrupt

    def _note(self, _: int, __: FrameType | None) -> None:
        self._received = True


class Team:
    """Processes that live and die together, such as the ranks of a trainer. Their output goes to files.

    Args:
        name: Its name, for people and for files.
        commands: A command for each process.
        folder: Where to write what they print.
        env: Environment variables for them.
        ends: Whether they end by themselves when their work is done. Otherwise they run until they are stopped.
    """

    def __init__(
        self, name: str, commands: list[list[str]], folder: Path, env: Mapping[str, str], ends: bool = False
    ) -> None:
        self.name = name
        self._commands = commands
        self._folder = folder
        self._env = env
        self._ends = ends
        self._failures = 0
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def is_alive(self) -> bool:
        """Whether all are running."""
        return all(process.poll() is None for process in self._processes)

    @property
    def has_finished(self) -> bool:
        """Whether all have ended by themselves."""
        return self._ends and all(process.poll() == 0 for process in self._processes)

    def output(self, rank: int = 0) -> str:
        """Return what one process has printed so far."""
        return self._log(rank).read_text(errors="replace").strip()

    def start(self) -> None:
        """Start all of them."""
        shared = {"WORLD_SIZE": str(len(self._commands)), "MASTER_PORT": str(_free_port())}  # as torchrun does
        shared["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "clients"), os.environ.get("PYTHONPATH", "")])
        self._processes = []
        for rank, command in enumerate(self._commands):
            env = {**os.environ, **self._env, **shared, "RANK": str(rank)}
            # It does not run in the clone, whose `.env` file is for another service. It has a session of its own:
            # Ctrl-C reaches the supervisor alone.
            with self._log(rank).open("ab") as log:
                process = subprocess.Popen(
                    [*TIED, *command], stdout=log, stderr=log, env=env, cwd=self._folder, start_new_session=True
                )
            self._processes.append(process)

    def keep_alive(self) -> None:
        """If one has died, end the others and start all of them again."""
        for rank, process in enumerate(self._processes):
            code = process.poll()
            if code is None or (code == 0 and self._ends):
                continue
            self._failures += code > 0
            how = f"signal {-code}" if code < 0 else f"exit code {code}: {self.output(rank).rpartition(chr(10))[2]}"
            if self._failures > MAX_FAILURES:
                sys.exit(f"The {self.name} does not stay alive ({how}). Its output is in {self._log(rank)}")
            print(f"The {self.name} died ({how}) and starts again.", flush=True)
            self.end()
            self.start()
            return

    def ask_to_end(self) -> None:
        """Send SIGTERM to all."""
        for process in self._processes:
            process.terminate()

    def end(self, grace_s: float = 0.0) -> None:
        """Wait until all have ended. After the grace, kill those that still run."""
        deadline = time.monotonic() + grace_s
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _log(self, rank: int) -> Path:
        return self._folder / f"{self.name.replace(' ', '-')}-{rank}.log"


@contextmanager
def running(*teams: Team) -> Iterator[None]:
    """Start these teams, and stop them at the end of the block, whatever happened in it."""
    try:
        for team in teams:
            team.start()
        yield
    finally:
        for team in teams:
            team.ask_to_end()
        for team in teams:
            team.end(GRACE_S)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
