"""The data directory of an embedded server: its records are whole, and it is not taken for another one."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from app.store.server.data_dir import ServerDir, known_socket
from app.store.server.embedded import EmbeddedRedis
from app.store.server.engine import find_server
from lachesis.wire.errors import StoreMisconfigured
from tests.e2e.processes import descendants, wait_until

DEEP = Path(*["deeply-nested"] * 15)  # deeper than the path of a socket may be


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False


@pytest.mark.parametrize(
    ("free", "said"), [(100 << 20, ""), (3 << 20, " | the disk is almost full: 3 MiB are free at ")]
)
def test_the_end_of_the_log_says_that_the_disk_is_full(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, free: int, said: str
) -> None:
    """A server whose write failed ends, and logs only how many bytes it wrote."""
    home = ServerDir.take(data_dir)
    (home.home / "redis.log").write_text("a\nb\nc\nd\n")
    usage = shutil.disk_usage(data_dir)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert home.log_end() == f"b | c | d{said}{home.home if said else ''}"


def test_records_are_on_the_disk_before_they_have_their_names(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise they may be empty after a power cut."""
    home, fsync = data_dir / "redis", os.fsync
    flushed: dict[int, tuple[int, list[Path]]] = {}

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        found = os.fstat(descriptor)
        names = [path for path in home.iterdir() if path.lstat().st_ino == found.st_ino]
        flushed[found.st_ino] = (found.st_size, names)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    EmbeddedRedis.start(data_dir).stop()
    for record in (home / "engine.json", home / "redis.conf"):
        found = record.stat()
        size, names = flushed[found.st_ino]
        assert size == found.st_size > 0
        assert record not in names


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"name": "Valkey", "version": "none"'])
def test_an_engine_that_cannot_be_read_is_refused_with_what_to_do(data_dir: Path, record: str) -> None:
    (data_dir / "redis").mkdir(parents=True)
    (data_dir / "redis" / "engine.json").write_text(record)
    with pytest.raises(StoreMisconfigured, match=r"engine\.json cannot be read: .*\. Remove it if"):
        EmbeddedRedis.start(data_dir)


@pytest.mark.slow
def test_a_dead_server_is_started_as_soon_as_its_engine_can_be_read(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = data_dir / "redis" / "engine.json"
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        whole = record.read_text()
        record.write_text("")
        os.kill(server.pid, signal.SIGKILL)
        wait_until("an attempt failed", lambda: "engine.json cannot be read" in caplog.text)
        record.write_text(whole)
        wait_until("it answers", lambda: answers(client))


@pytest.mark.slow
def test_a_copy_of_the_data_gets_a_server_of_its_own(tmp_path: Path) -> None:
    original, copy = tmp_path / "original" / DEEP, tmp_path / "copy" / DEEP
    with EmbeddedRedis.start(original) as server, Redis.from_url(server.url) as client:
        client.set("group", "of both")
        shutil.copytree(original, copy)
        assert known_socket(original) != original / "redis" / "redis.sock"
        assert known_socket(copy) == copy / "redis" / "redis.sock"
        with EmbeddedRedis.start(copy) as other, Redis.from_url(other.url) as client_of_copy:
            assert other.pid != server.pid
            assert client_of_copy.get("group") == b"of both"
            client_of_copy.set("group", "of the copy")
        assert client.get("group") == b"of both"


def test_a_server_on_our_socket_that_works_elsewhere_is_left_alone(data_dir: Path, tmp_path: Path) -> None:
    socket, elsewhere = data_dir / "redis" / "redis.sock", tmp_path / "elsewhere"
    for folder in (socket.parent, elsewhere):
        folder.mkdir(parents=True)
    command = [find_server(None)[0], "--port", "0", "--unixsocket", socket, "--dir", elsewhere]
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL) as other,
        Redis(unix_socket_path=str(socket)) as client,
    ):
        try:
            wait_until("it answers", lambda: answers(client))
            with pytest.raises(StoreMisconfigured, match=rf"\(pid {other.pid}\) works in .*elsewhere"):
                EmbeddedRedis.start(data_dir)
            assert answers(client)
        finally:
            other.kill()


UNUSABLE = {
    "empty": "",
    "of an older version": "redis.sock",
    "no object": "[]",
    "without a directory": '{"socket": "redis.sock"}',
    "of another directory": '{"socket": "redis.sock", "directory": [0, 0]}',
}


@pytest.mark.parametrize("record", UNUSABLE.values(), ids=UNUSABLE)
def test_a_record_of_a_socket_that_cannot_be_used_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    here, data_dir = tmp_path / "here", tmp_path / DEEP
    here.mkdir(mode=0o700)
    (here / "redis.sock").touch()
    monkeypatch.chdir(here)
    directory = ServerDir.take(data_dir)
    (data_dir / "redis" / "socket.json").write_text(record)
    socket = directory.socket()
    assert socket.is_absolute()
    (data_dir / "redis" / "socket.json").write_text(record)
    directory.give_back()
    socket.parent.rmdir()  # nothing says that it is ours
    assert list(here.iterdir()) == [here / "redis.sock"]


def test_a_recorded_socket_directory_that_others_could_have_made_is_not_used(tmp_path: Path) -> None:
    data_dir, planted = tmp_path / DEEP, tmp_path / "planted"
    (data_dir / "redis").mkdir(parents=True)
    planted.mkdir(mode=0o755)
    home = (data_dir / "redis").stat()
    record = {"socket": str(planted / "redis.sock"), "directory": [home.st_dev, home.st_ino]}
    (data_dir / "redis" / "socket.json").write_text(json.dumps(record))
    assert known_socket(data_dir) == data_dir / "redis" / "redis.sock"
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        assert "planted" not in server.url
        assert answers(client)
    planted.chmod(0o700)
    (data_dir / "redis" / "socket.json").write_text(json.dumps(record))
    assert known_socket(data_dir) == planted / "redis.sock", "only its mode was wrong"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_server_killed_during_a_rewrite_leaves_no_file_and_is_spared_another(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As if the rewrite had filled the disk, which ends the server."""
    monkeypatch.setattr("app.store.server.embedded._LARGE_FILE_BYTES", 10 << 20)
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        client.config_set("rdb-key-save-delay", 600_000_000)  # a rewrite that does not end
        client.set("kept", "1")
        client.set("payload", b"x" * (11 << 20))
        client.delete("payload")
        wait_until("it rewrites", lambda: any((data_dir / "redis").glob("temp-*.aof")))
        killed = server.pid
        for process in (killed, *descendants(killed)):
            os.kill(process, signal.SIGKILL)
        wait_until("the next one was looked at", lambda: "could not rewrite its append-only file" in caplog.text)
        assert server.pid != killed
        assert list((data_dir / "redis").glob("temp-*")) == []
        assert "cmdstat_bgrewriteaof" not in client.info("commandstats")
        assert client.get("kept") == b"1"
