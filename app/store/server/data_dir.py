"""The directory of an embedded server: who may use it, where its socket is, what wrote its data.

data_dir/redis/            0700
  lock                     held by the service that owns it; names its process
  engine.json              which engine wrote the data
  socket-path              where the socket is, if this path is too long for one
  redis.conf  redis.pid  redis.log  redis.sock  appendonlydir/
"""

import fcntl
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO, Self

from app.core.errors import StoreMisconfigured
from app.store.server.engine import Engine

_SOCKET_PATH_BYTES = 100  # the kernel takes 107 (macOS 103)
_LOG_BYTES = 4 * 1024 * 1024


class ServerDir:
    """A data directory that this process, and no other service, holds."""

    def __init__(self, home: Path, lock: int) -> None:
        self.home = home
        self._lock: int | None = lock

    @classmethod
    def take(cls, data_dir: Path) -> Self:
        """Make ``data_dir`` if need be and lock it; the lock falls with this process, however it ends.

        Raises:
            StoreMisconfigured: A running service has it, or it cannot be written.
        """
        home = data_dir.absolute() / "redis"
        try:
            home.mkdir(parents=True, exist_ok=True)
            home.chmod(0o700)
            return cls(home, _lock(home))
        except OSError as error:
            raise StoreMisconfigured(f"cannot keep data in LACHESIS_DATA_DIR={data_dir}: {error}") from error

    def give_back(self) -> None:
        """Unlock; remove what is needed only while a server runs."""
        if self._lock is None:
            return
        record = self.home / "socket-path"
        if record.exists():
            shutil.rmtree(Path(record.read_text()).parent, ignore_errors=True)
            record.unlink()
        os.close(self._lock)
        self._lock = None

    def socket(self) -> Path:
        """Return where the server listens: here, or in a private temporary directory where this path is too long.

        The same answer again until `give_back`, also for the next process: so it finds a server left running.
        """
        inside = self.home / "redis.sock"
        if len(os.fsencode(inside)) <= _SOCKET_PATH_BYTES:
            return inside
        record = self.home / "socket-path"
        if record.exists():
            recorded = Path(record.read_text())
            if _is_ours_alone(recorded.parent):
                return recorded
        base = tempfile.gettempdir()
        fits = len(os.fsencode(base)) < _SOCKET_PATH_BYTES // 2
        short = base if fits else "/tmp"  # noqa: S108 - mkdtemp makes it private
        elsewhere = Path(tempfile.mkdtemp(prefix="lachesis-", dir=short)) / "redis.sock"
        _write_whole(record, str(elsewhere))
        return elsewhere

    def claim_data(self, engine: Engine) -> None:
        """Note that ``engine`` writes the data from now on.

        Raises:
            StoreMisconfigured: A newer or another engine wrote it; nothing was changed.
        """
        record = self.home / "engine.json"
        if record.exists():
            written_by = Engine.parse(**json.loads(record.read_text()))
            if not engine.can_open(written_by):
                raise StoreMisconfigured(
                    f"the data in {self.home} was written by {written_by}, which {engine} may not be able to read; "
                    "set LACHESIS_REDIS_BIN to that engine or a newer one, or LACHESIS_DATA_DIR to another place"
                )
        version = ".".join(map(str, engine.version))
        _write_whole(record, json.dumps({"name": engine.name, "version": version}))

    def running_server(self) -> int | None:
        """Return the process that keeps its data here, if the pid file names one that really is such a server."""
        try:
            pid = int((self.home / "redis.pid").read_text())
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
            cwd = Path(f"/proc/{pid}/cwd").readlink()
        except (OSError, ValueError):  # none, or no /proc (macOS): then only the socket tells
            return None
        return pid if b"-server" in arguments and cwd == self.home.resolve() else None

    def write_configuration(self, limits: dict[str, int]) -> Path:
        """Write the server's configuration: private, fsync before each answer, never evicting.

        Args:
            limits: Further settings by name, in bytes.

        Returns:
            The file.
        """
        settings: dict[str, str | int] = {
            "port": 0,
            "unixsocket": _quoted(self.socket()),
            "unixsocketperm": 700,
            "dir": _quoted(self.home),
            "pidfile": _quoted(self.home / "redis.pid"),
            "daemonize": "no",
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "always",
            "no-appendfsync-on-rewrite": "no",
            "auto-aof-rewrite-min-size": "1gb",
            "aof-load-truncated": "yes",
            "aof-use-rdb-preamble": "no",  # keeps the data readable for other engines
            "maxmemory-policy": "noeviction",
            "busy-reply-threshold": 1000,
            "enable-debug-command": "no",
            "enable-module-command": "no",
            **limits,
        }
        path = self.home / "redis.conf"
        path.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        return path

    def open_log(self) -> BinaryIO:
        """Open the server's log to append to; of an old one that grew long, one is kept."""
        path = self.home / "redis.log"
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.replace(self.home / "redis.log.1")
        return path.open("ab")

    def log_end(self) -> str:
        """Return the last words of the server, on one line."""
        lines = (self.home / "redis.log").read_text(errors="replace").split("\n")
        return " | ".join([line.strip() for line in lines if line.strip()][-3:])


def _lock(home: Path) -> int:
    # Python's descriptors are not inherited, so neither the server nor a worker can hold the lock in our place.
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(lock, 32).decode(errors="replace").strip()
        os.close(lock)
        if not isinstance(error, BlockingIOError):  # a file system without locks
            raise
        raise StoreMisconfigured(
            f"{home.parent} belongs to a running service (pid {owner}); "
            "stop that one, or set LACHESIS_DATA_DIR to another place"
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _is_ours_alone(directory: Path) -> bool:
    # Anyone may make a directory of that name in a shared temporary directory once ours has been cleaned away.
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _write_whole(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)
