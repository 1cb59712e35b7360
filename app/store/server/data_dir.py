"""Manage the directory of an embedded server: its lock, its socket, and the engine that wrote its data.

data_dir/                  0700 if this service creates it; an existing one keeps its mode
data_dir/redis/            0700, and so are directories in it; files have 0600
  lock                     held by the service that owns it; names its process
  engine.json              which engine wrote the data
  socket.json              where the socket is, if this path is too long for one; and of which directory it is
  redis.conf  redis.pid  redis.log  redis.sock  appendonlydir/
"""

import contextlib
import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Self

from app.store.server.engine import Engine
from lachesis.wire.errors import StoreMisconfigured

_ENGINE, _SOCKET = "engine.json", "socket.json"
_SOCKET_PATH_BYTES = 100  # the kernel takes 107 (macOS 103)
_LOG_BYTES = 4 * 1024 * 1024
_LOG_END_BYTES = 16 * 1024
_LITTLE_FREE_BYTES = 64 * 1024 * 1024


class ServerDir:
    """A data directory that this process, and no other service, holds."""

    def __init__(self, home: Path, lock: int) -> None:
        self.home = home
        self._lock: int | None = lock

    @classmethod
    def take(cls, data_dir: Path) -> Self:
        """Create ``data_dir`` if it is missing, and lock it. The lock ends with this process.

        Raises:
            StoreMisconfigured: A running service has it, or it cannot be written.
        """
        home = data_dir.absolute() / "redis"
        try:
            if not data_dir.exists():
                data_dir.parent.mkdir(parents=True, exist_ok=True)
                data_dir.mkdir(mode=0o700, exist_ok=True)
            home.mkdir(mode=0o700, exist_ok=True)
            _make_private(home)
            return cls(home, _lock(home))
        except OSError as error:
            raise StoreMisconfigured(f"cannot keep data in LACHESIS_DATA_DIR={data_dir}: {error}") from error

    def give_back(self) -> None:
        """Unlock; remove what is needed only while a server runs."""
        if self._lock is None:
            return
        if (socket := _recorded_socket(self.home)) is not None:
            with contextlib.suppress(OSError):
                socket.unlink(missing_ok=True)
                socket.parent.rmdir()
        (self.home / _SOCKET).unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = None

    def socket(self) -> Path:
        """Return where the server listens: here, or in a private temporary directory where this path is too long.

        The answer stays the same until `give_back`, for the next process, too. So that one finds a server left running.
        """
        inside = self.home / "redis.sock"
        if len(os.fsencode(inside)) <= _SOCKET_PATH_BYTES:
            return inside
        if (recorded := _recorded_socket(self.home)) is not None:
            return recorded
        elsewhere = Path(tempfile.mkdtemp(prefix="lachesis-", dir=short_temporary_folder())) / "redis.sock"
        write_whole(self.home / _SOCKET, json.dumps({"socket": str(elsewhere), "directory": _identity(self.home)}))
        return elsewhere

    def remake_socket_folder(self, socket: Path) -> None:
        """Make the temporary directory of a socket again if it was cleaned away: clients look for the server there."""
        if socket.parent != self.home:
            with contextlib.suppress(OSError):  # it is there, or cannot be made
                socket.parent.mkdir(mode=0o700)

    def has_append_only_file(self) -> bool:
        """Return whether each part of the server's append-only file is there."""
        folder = self.home / "appendonlydir"
        try:
            lines = (folder / "appendonly.aof.manifest").read_text().splitlines()
            parts = [line.split() for line in lines if not line.endswith("type h")]  # h: needed no longer
            return all((folder / part[1]).exists() for part in parts)
        except (OSError, ValueError, IndexError):
            return False

    def claim_data(self, engine: Engine) -> None:
        """Note that ``engine`` writes the data from now on.

        Raises:
            StoreMisconfigured: A newer or another engine wrote it, or the note cannot be read; nothing was changed.
        """
        written_by = recorded_engine(self.home)
        if written_by is not None and not engine.can_open(written_by):
            raise StoreMisconfigured(
                f"the data in {self.home} was written by {written_by}, which {engine} may not be able to read",
                remedy="Set LACHESIS_REDIS_BIN to that engine or a newer one, or LACHESIS_DATA_DIR to another place.",
            )
        version = ".".join(map(str, engine.version))
        write_whole(self.home / _ENGINE, json.dumps({"name": engine.name, "version": version}))

    def remove_temporary_files(self) -> None:
        """Remove what a server that was killed had begun to write. No server may run."""
        for pattern in ("temp-*.aof", "temp-*.rdb"):
            for path in self.home.glob(pattern):
                path.unlink(missing_ok=True)

    def running_server(self) -> int | None:
        """Return the process id of the server on this directory, if the pid file names a process that is one."""
        try:
            pid = int((self.home / "redis.pid").read_text())
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
            cwd = Path(f"/proc/{pid}/cwd").readlink()
        except (OSError, ValueError):  # none, or no /proc (macOS): then only the socket tells
            return None
        return pid if b"-server" in arguments and cwd == self.home.resolve() else None

    def write_configuration(self, chosen: Mapping[str, str | int]) -> Path:
        """Write the server's configuration: private, with an append-only file, never evicting.

        Args:
            chosen: Further settings by name: how often to fsync, and limits in bytes.

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
            "no-appendfsync-on-rewrite": "no",
            "auto-aof-rewrite-min-size": "1gb",
            "aof-load-truncated": "yes",
            "aof-use-rdb-preamble": "no",  # keeps the data readable for other engines
            "maxmemory-policy": "noeviction",
            "busy-reply-threshold": 1000,
            "enable-debug-command": "no",
            "enable-module-command": "no",
            **chosen,
        }
        path = self.home / "redis.conf"
        write_whole(path, "".join(f"{name} {value}\n" for name, value in settings.items()))
        return path

    def open_log(self) -> BinaryIO:
        """Open the server's log to append to; of an old one that grew long, one is kept."""
        path = self.home / "redis.log"
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.replace(self.home / "redis.log.1")
        return open(path, "ab", opener=private)

    def log_end(self) -> str:
        """Return the end of the server's log on one line. If the log cannot be read, return why.

        If the disk is almost full, say so: of a write that failed, the server logs only how much it wrote.
        """
        try:
            with (self.home / "redis.log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_END_BYTES))
                text = log.read().decode(errors="replace")
        except OSError as error:
            return f"{self.home / 'redis.log'} cannot be read: {error.strerror}"
        lines = [line.strip() for line in text.split("\n") if line.strip()][-3:]
        free = shutil.disk_usage(self.home).free
        if free < _LITTLE_FREE_BYTES:
            lines.append(f"the disk is almost full: {free >> 20} MiB are free at {self.home}")
        return " | ".join(lines)


def short_temporary_folder() -> str:
    """Return the folder for temporary files, or /tmp if the path of a socket below that folder is too long."""
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) < _SOCKET_PATH_BYTES // 2 else "/tmp"  # noqa: S108 - for private folders


def has_data(data_dir: Path) -> bool:
    """Return whether a service has used a data directory.

    Raises:
        StoreMisconfigured: This user cannot look into it.
    """
    try:
        (data_dir / "redis").stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreMisconfigured(
            f"cannot look into LACHESIS_DATA_DIR={data_dir}: {error.strerror}",
            remedy="Run the command as the user that owns the data.",
        ) from error
    return True


def refuse_root(data_dir: Path) -> None:
    """Refuse to make files as root among the data of another user: the service of that user could not use them.

    Raises:
        StoreMisconfigured: This is root, and the data belongs to another user.
    """
    home = data_dir.absolute() / "redis"
    if os.geteuid() != 0 or not home.is_dir() or (owner := home.stat().st_uid) == 0:
        return
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=home) as made:
        if os.fstat(made.fileno()).st_uid == owner:  # such as NFS, which maps root to another user
            return
    raise StoreMisconfigured(
        f"{home} belongs to user {owner}, and this is root: the service could not use files of root",
        remedy=f"Run the command as the user that owns the data, for example with sudo -u '#{owner}'.",
    )


def give_to_owner(made: BinaryIO, folder: Path) -> None:
    """Give a file that root has made in a folder to the owner of the folder."""
    if os.geteuid() == 0:
        owner = folder.stat()
        with contextlib.suppress(OSError):  # a file system without owners
            os.fchown(made.fileno(), owner.st_uid, owner.st_gid)


def recorded_engine(home: Path) -> Engine | None:
    """Return which engine wrote the data; None if that is not noted.

    Raises:
        StoreMisconfigured: The note cannot be read.
    """
    record = home / _ENGINE
    try:
        return Engine.parse(**json.loads(record.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise StoreMisconfigured(
            f"{record} cannot be read: {error}",
            remedy="Remove it if the same engine or a newer one runs now, or restore a backup.",
        ) from error


def known_socket(data_dir: Path) -> Path:
    """Return where the server of another process on ``data_dir`` listens, if one runs. Changes nothing."""
    home = data_dir.absolute() / "redis"
    return _recorded_socket(home) or home / "redis.sock"


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


def _recorded_socket(home: Path) -> Path | None:
    """Return the recorded socket, if the record is of this directory and no copy of another one's."""
    try:
        record = json.loads((home / _SOCKET).read_text())
        socket, directory = Path(record["socket"]), record["directory"]
        return socket if directory == _identity(home) and _is_ours_alone(socket.parent) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _identity(home: Path) -> list[int]:
    found = home.stat()
    return [found.st_dev, found.st_ino]


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


def write_whole(path: Path, text: str) -> None:
    """Write a file for this user alone. After an error or a power cut it has all of the text, or what it had before."""
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb", opener=private) as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Flush the names of a directory to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private(path: str, flags: int) -> int:
    """Open a file that only this user may read, whatever the umask is."""
    return os.open(path, flags, 0o600)


def _make_private(home: Path) -> None:
    """Take the permissions of others from a directory and all that is in it. An older version may have left them.

    Files of other users stay as they are. No other user can reach them in this directory.
    """
    home.chmod(0o700)
    for folder, folders, files in os.walk(home):
        for name, mode in (*((name, 0o700) for name in folders), *((name, 0o600) for name in files)):
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):  # the server of another service deletes files
                found = path.lstat()
                is_ours = os.geteuid() in (0, found.st_uid)
                if is_ours and (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
                    path.chmod(mode)
