"""Back up an embedded server while it runs, and restore it into an empty data directory.

DIR/                 0700
  data.rdb           0600: what the server held at one moment, after the backup began
  manifest.json      what made it, its size and SHA-256; written last, so a backup without it is not complete

A restored directory holds the snapshot as the base of an append-only file. The server loads it as its own.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, Field
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from app.store.redis.keys import FORMAT
from app.store.server.data_dir import (
    ServerDir,
    give_to_owner,
    has_data,
    private,
    refuse_root,
    sync_folder,
    write_whole,
)
from app.store.server.engine import Engine, find_server

_DATA, _MANIFEST = "data.rdb", "manifest.json"
_BASE, _REST = "appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof"
_LAYOUT = 1
_PIECE_BYTES = 1024 * 1024
_LOOK_S = 0.05
_UNHARMFUL = {"lock", "engine.json"}  # without data beside them: an interrupted restore left them


class BackupFailed(Exception):
    """A backup was not made or not restored. The message says what to do."""


class BackupManifest(BaseModel):
    """What a backup says of itself."""

    model_config = ConfigDict(frozen=True)

    layout: int
    made_at: str
    lachesis: str
    store_format: int
    engine: str
    engine_version: str = Field(pattern=r"^[0-9]{1,4}(\.[0-9]{1,4})*")
    keys: int
    bytes: int
    sha256: str


def make_backup(url: str, data_dir: Path, target: Path, lachesis: str) -> BackupManifest:
    """Save what the server on ``data_dir`` holds into ``target``, while it runs.

    Everything that was acknowledged before the call is in the backup. What comes later may be.

    Args:
        url: Where the server is.
        data_dir: Its data directory.
        target: A directory that is missing or empty.
        lachesis: The version of this service.

    Raises:
        BackupFailed: ``target`` is not empty, cannot be written or is among the data; another backup is under way; or
            the server could not save.
    """
    home = data_dir.absolute() / "redis"
    if target.resolve().is_relative_to(home.resolve()):
        raise BackupFailed(f"{target} is in the data directory, and would be lost with it: name a place elsewhere")
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise BackupFailed(f"{target} is not empty: name a directory that is missing or empty")
        with _alone(home), Redis.from_url(url) as client:
            snapshot = home / "dump.rdb"
            try:
                return _back_up(client, snapshot, target, lachesis)
            except BaseException:
                _cancel_save(client)
                (target / _DATA).unlink(missing_ok=True)
                raise
            finally:
                snapshot.unlink(missing_ok=True)
    except OSError as error:
        raise BackupFailed(f"cannot back up {data_dir} into {target}: {error}") from error
    except RedisError as error:
        raise BackupFailed(f"the server did not save its data: {error}. Repeat the command") from error


def _back_up(client: Redis, snapshot: Path, target: Path, lachesis: str) -> BackupManifest:
    keys, engine = _save(client), Engine.reported(client.info("server"))
    with snapshot.open("rb") as saved, _new_file(target / _DATA) as copy:
        size, digest = _copy(saved, copy)
    manifest = BackupManifest(
        layout=_LAYOUT,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        lachesis=lachesis,
        store_format=FORMAT,
        engine=engine.name,
        engine_version=".".join(map(str, engine.version)),
        keys=keys,
        bytes=size,
        sha256=digest,
    )
    write_whole(target / _MANIFEST, manifest.model_dump_json(indent=2))
    sync_folder(target)
    return manifest


def restore_backup(source: Path, data_dir: Path, binary: Path | None) -> BackupManifest:
    """Put a backup into ``data_dir``, which holds no data. The service starts from there.

    The backup is checked first. An interrupted restore leaves no data, and can be repeated.

    Args:
        source: The directory of the backup.
        data_dir: A data directory without data of a service. It is made if it is missing.
        binary: The server that will run; None means that of `find_server`.

    Raises:
        BackupFailed: The backup is damaged, incomplete or of another version; or ``data_dir`` has data.
        StoreMisconfigured: There is no usable server, a running service has ``data_dir``, or this is root and it
            belongs to another user.
    """
    refuse_root(data_dir)
    manifest = _checked(source)
    engine = find_server(binary)[1]
    written_by = Engine.parse(manifest.engine, manifest.engine_version)
    if not engine.can_open(written_by):
        raise BackupFailed(
            f"{source} was written by {written_by}, which {engine} may not be able to read; "
            "set LACHESIS_REDIS_BIN to that engine or a newer one"
        )
    _refuse_data(data_dir)
    directory = ServerDir.take(data_dir)
    try:
        _refuse_data(data_dir)  # a service may have been here before us
        part = directory.home / "appendonlydir.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700)
        with (source / _DATA).open("rb") as saved, _new_file(part / _BASE) as copy:
            if _copy(saved, copy) != (manifest.bytes, manifest.sha256):
                raise BackupFailed(f"{source / _DATA} has changed while it was read: repeat the command")
        write_whole(part / _REST, "")
        write_whole(part / "appendonly.aof.manifest", f"file {_BASE} seq 1 type b\nfile {_REST} seq 1 type i\n")
        sync_folder(part)
        directory.claim_data(written_by)
        part.rename(directory.home / "appendonlydir")
        sync_folder(directory.home)
    except OSError as error:
        raise BackupFailed(f"cannot restore {source} into {data_dir}: {error}") from error
    finally:
        directory.give_back()
    return manifest


def _checked(source: Path) -> BackupManifest:
    """Return the manifest of a backup whose data is whole, and of this format."""
    try:
        manifest = BackupManifest.model_validate_json((source / _MANIFEST).read_bytes())
        with (source / _DATA).open("rb") as saved:
            found = (os.fstat(saved.fileno()).st_size, hashlib.file_digest(saved, "sha256").hexdigest())
    except FileNotFoundError as error:
        raise BackupFailed(
            f"{source} is not a complete backup: {error.filename} is missing. Name the directory of a backup"
        ) from error
    except (OSError, ValueError) as error:
        raise BackupFailed(f"{source} cannot be read as a backup: {error}") from error
    if manifest.layout != _LAYOUT or manifest.store_format != FORMAT:
        raise BackupFailed(
            f"{source} is a backup of Lachesis {manifest.lachesis} with stored format {manifest.store_format}; this "
            f"version reads format {FORMAT}. Restore it with that version of the service"
        )
    if found != (manifest.bytes, manifest.sha256):
        raise BackupFailed(
            f"{source / _DATA} is damaged: its size or SHA-256 is not that of the manifest. Restore another backup"
        )
    return manifest


def _refuse_data(data_dir: Path) -> None:
    home = data_dir / "redis"
    try:
        found = sorted(path.name for path in home.iterdir()) if has_data(data_dir) else []
    except OSError as error:
        raise BackupFailed(f"cannot look into {home}: {error.strerror}") from error
    if data := [name for name in found if name not in _UNHARMFUL and not name.endswith(".part")]:
        raise BackupFailed(
            f"{home} already has data ({data[0]}): stop the service and move it away, or set LACHESIS_DATA_DIR to "
            "another place"
        )


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Hold the lock of backups: two at a time would take each other's file."""
    with open(home / "backup.lock", "ab", opener=private) as lock:
        give_to_owner(lock, home)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackupFailed(f"another backup of {home.parent} is under way: wait until it has ended") from error
        yield


def _save(client: Redis) -> int:
    """Let the server save itself, beginning now, and wait for it. Return how many keys it has."""
    before = client.info("server")["run_id"]
    while True:
        try:
            client.bgsave(schedule=False)
            break
        except ResponseError as error:  # it began to save or to rewrite its file before: that may lack the newest data
            if "in progress" not in str(error) and "active" not in str(error):
                raise
            time.sleep(_LOOK_S)
    keys = int(client.dbsize())
    while (info := client.info("persistence"))["rdb_bgsave_in_progress"]:
        time.sleep(_LOOK_S)
    if client.info("server")["run_id"] != before:
        raise BackupFailed("the server ended while it saved its data, and was started again: repeat the command")
    if info["rdb_last_bgsave_status"] != "ok":
        raise BackupFailed(
            "the server did not save its data; redis.log in the data directory says why. If the disk of the data "
            "directory is full, make room for a copy of the data, and repeat the command"
        )
    return keys


def _cancel_save(client: Redis) -> None:
    """End a save that has no backup any more. Redis cannot cancel it, and leaves the file when it ends."""
    with contextlib.suppress(RedisError):
        client.execute_command("BGSAVE CANCEL")  # type: ignore[no-untyped-call]
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            time.sleep(_LOOK_S)


def _copy(source: BinaryIO, target: BinaryIO) -> tuple[int, str]:
    """Copy a file, and flush it to the disk. Return its bytes and its SHA-256."""
    digest, size = hashlib.sha256(), 0
    while piece := source.read(_PIECE_BYTES):
        target.write(piece)
        digest.update(piece)
        size += len(piece)
    target.flush()
    os.fsync(target.fileno())
    return size, digest.hexdigest()


def _new_file(path: Path) -> BinaryIO:
    return open(path, "wb", opener=private)
