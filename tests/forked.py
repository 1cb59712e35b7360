"""Run Python modules as `python -m` does, in processes forked from one that has imported them already.

A command takes most of a second to start, nearly all of it for imports, and the tests start hundreds. A forked command
is a process of its own, too: it has its own variables, directory, streams and exit code.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

ROOT = Path(__file__).parents[1]
_IMPORTED = ("app.cli.main", "app.process.serve", "app.store.server.checkup", "lachesis._cli.commands")
_PATH = os.pathsep.join((str(ROOT), str(ROOT / "clients")))
_starting = threading.Lock()


def environment(**variables: str) -> dict[str, str]:
    """Return the variables of a command: none of Lachesis but these."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("LACHESIS_", "COLUMNS"))}
    return {**ours, "PYTHONPATH": _PATH, "TERM": "xterm", **variables}


class Command:
    """A command that runs.

    Args:
        words: The module and its arguments.
        env: The variables of the command.
        cwd: The directory to run it in.
        streams: Descriptors of its standard input, output and errors.
    """

    def __init__(
        self, words: tuple[str, ...], env: Mapping[str, str], cwd: Path, streams: tuple[int, int, int]
    ) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            with _starting:
                forks = _forks()
            socket.send_fds(forks, [b"."], [theirs.fileno(), *streams])
        self._ours.sendall(json.dumps({"words": words, "env": dict(env), "cwd": str(cwd)}).encode())
        self._ours.shutdown(socket.SHUT_WR)

    def wait(self, timeout_s: float = 100) -> int:
        """Wait for its end. Return its exit code as `subprocess` does: the negative number of a signal that ended it.

        Raises:
            TimeoutError: It still runs.
        """
        self._ours.settimeout(timeout_s)
        with self._ours as ours:
            return int(ours.recv(64))


def run_module(
    *words: str, env: Mapping[str, str], cwd: Path = ROOT, timeout_s: float = 100
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end, with an empty standard input. Return its exit code and what it printed."""
    with TemporaryFile() as out, TemporaryFile() as err, open(os.devnull, "rb") as empty:
        code = Command(words, env, cwd, (empty.fileno(), out.fileno(), err.fileno())).wait(timeout_s)
        printed = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (out, err)]
    return subprocess.CompletedProcess(words, code, *printed)


@functools.cache
def _forks() -> socket.socket:
    """Start the process that has imported the modules. It ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
            env=environment(),
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> None:
    """Fork a process for each request, until the tests end."""
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.freeze()  # otherwise each command would copy most of the memory
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes ended processes
    while True:
        _, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
        if not descriptors:
            return None
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _carry_out(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _carry_out(reply: int, *streams: int) -> None:
    """Run a command in a child, and send its exit code."""
    with socket.socket(fileno=reply) as connection, connection.makefile("rb") as request:
        given = json.load(request)
        child = os.fork()
        if child:
            for stream in streams:
                os.close(stream)
            _, status = os.waitpid(child, 0)
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    os.environ.clear()
    os.environ.update(given["env"])
    os.chdir(given["cwd"])
    module, *sys.argv[1:] = given["words"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
