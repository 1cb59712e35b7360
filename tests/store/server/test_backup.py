"""A backup that fails or is interrupted leaves nothing behind. Damaged data can be repaired as documented.

tests/cli/test_backups.py has backups that succeed.
"""

import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from app.process.signals import STOP_SIGNALS
from app.store.server.backup import BackupFailed, make_backup, restore_backup
from app.store.server.data_dir import write_whole
from app.store.server.embedded import EmbeddedRedis
from lachesis.wire.errors import StoreUnavailable
from tests.e2e.processes import descendants, wait_until
from tests.forked import environment
from tests.store.server.test_embedded import answers


@contextmanager
def room_for(most_bytes: int) -> Iterator[None]:
    """Let this process write no larger files, as if a disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_backup_that_cannot_be_written_leaves_no_files_and_can_be_repeated(
    own_server: EmbeddedRedis, tmp_path: Path
) -> None:
    data_dir, target = Path(own_server.url.removeprefix("unix://")).parents[1], tmp_path / "backup"
    with Redis.from_url(own_server.url) as redis:
        redis.set("lachesis:test", os.urandom(3 << 20))
    with room_for(1 << 20), pytest.raises(BackupFailed, match="File too large"):
        make_backup(own_server.url, data_dir, target, "0.1.0")
    assert list(target.iterdir()) == []
    assert not (data_dir / "redis" / "dump.rdb").exists()
    assert make_backup(own_server.url, data_dir, target, "0.1.0").bytes > 3 << 20
    assert not (data_dir / "redis" / "dump.rdb").exists()


def test_a_server_without_room_to_save_says_to_make_room(own_server: EmbeddedRedis, tmp_path: Path) -> None:
    data_dir, target = Path(own_server.url.removeprefix("unix://")).parents[1], tmp_path / "backup"
    with Redis.from_url(own_server.url) as redis:
        redis.set("lachesis:test", os.urandom(3 << 20))
    resource.prlimit(own_server.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    with pytest.raises(BackupFailed, match=r"redis\.log .* is full, make room for a copy of the data, and repeat"):
        make_backup(own_server.url, data_dir, target, "0.1.0")
    assert list(target.iterdir()) == []


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    write_whole(tmp_path / "engine.json", "{}")
    with room_for(4), pytest.raises(OSError, match="File too large"):
        write_whole(tmp_path / "engine.json", "longer")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("engine.json", "{}")]


def test_a_backup_among_the_data_is_refused(own_server: EmbeddedRedis) -> None:
    data_dir = Path(own_server.url.removeprefix("unix://")).parents[1]
    with pytest.raises(BackupFailed, match="is in the data directory"):
        make_backup(own_server.url, data_dir, data_dir / "redis" / "backup", "0.1.0")
    assert not (data_dir / "redis" / "backup").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_an_interrupted_backup_ends_the_save_and_leaves_no_files(
    own_server: EmbeddedRedis, tmp_path: Path, number: signal.Signals
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("this signal is ignored here, as under nohup")
    if own_server.engine.name != "Valkey":
        pytest.skip("Redis cannot cancel a save")
    data_dir, target = Path(own_server.url.removeprefix("unix://")).parents[1], tmp_path / "backup"
    with Redis.from_url(own_server.url) as redis:

        def saves() -> bool:
            return bool(redis.info("persistence")["rdb_bgsave_in_progress"])

        redis.set("lachesis:test", "1")
        redis.config_set("rdb-key-save-delay", 600_000_000)  # a save that does not end
        command = [sys.executable, "-m", "app", "backup", target]
        with subprocess.Popen(command, env=environment(LACHESIS_DATA_DIR=str(data_dir))) as backup:
            wait_until("the server saves", saves)
            backup.send_signal(number)
            assert backup.wait(100) == 130
        assert not saves()
        assert list(target.iterdir()) == []
        assert [path.name for path in (data_dir / "redis").glob("*.rdb")] == []


@pytest.mark.slow
def test_a_server_that_is_started_again_during_a_backup_fails_it(own_server: EmbeddedRedis, tmp_path: Path) -> None:
    """The new server says that its last save went well. A file may be there, from a backup that was killed."""
    data_dir, target = Path(own_server.url.removeprefix("unix://")).parents[1], tmp_path / "backup"
    stale = data_dir / "redis" / "dump.rdb"
    with Redis.from_url(own_server.url) as redis:

        def saves() -> bool:
            return bool(redis.info("persistence")["rdb_bgsave_in_progress"])

        redis.set("lachesis:test", "1")
        redis.config_set("rdb-key-save-delay", 600_000_000)  # a save that does not end
        stale.write_bytes(b"an older state")
        command = [sys.executable, "-m", "app", "backup", target]
        settings = environment(LACHESIS_DATA_DIR=str(data_dir))
        with subprocess.Popen(command, env=settings, stderr=subprocess.PIPE, text=True) as backup:
            wait_until("the server saves", saves)
            backup.send_signal(signal.SIGSTOP)  # as on a machine without memory, where processes are ended
            first = own_server.pid
            for process in (*descendants(first), first):
                os.kill(process, signal.SIGKILL)
            wait_until("another server runs", lambda: own_server.pid != first and answers(own_server))
            stale.write_bytes(b"an older state")
            backup.send_signal(signal.SIGCONT)
            _, said = backup.communicate(timeout=100)
        assert (backup.returncode, list(target.iterdir())) == (1, [])
        assert "the server ended while it saved its data" in said
        assert not stale.exists()


def documented_repair(data_dir: Path) -> str:
    """Return the commands of docs/operate/index.md that repair damaged data, for a data directory."""
    page = (Path(__file__).parents[3] / "docs/operate/index.md").read_text()
    (block,) = re.findall(r"### If the data is damaged.*?```text\n(.*?)```", page, re.S)
    return re.sub("^\\$ ", "", block, flags=re.M).replace("/data/", f"{data_dir}/")


def test_the_documented_repair_keeps_what_a_restored_server_wrote_before_the_damage(
    own_server: EmbeddedRedis, tmp_path: Path
) -> None:
    data_dir, copied, restored = Path(own_server.url.removeprefix("unix://")).parents[1], tmp_path / "b", tmp_path / "r"
    with Redis.from_url(own_server.url) as redis:
        redis.set("lachesis:backed-up", "1")
    make_backup(own_server.url, data_dir, copied, "0.1.0")
    restore_backup(copied, restored, None)
    with EmbeddedRedis.start(restored) as server, Redis.from_url(server.url) as redis:
        redis.set("lachesis:before", "2")
        redis.set("lachesis:damaged", "damaged")
        redis.set("lachesis:after", "4")
    (file,) = (restored / "redis" / "appendonlydir").glob("*.incr.aof")
    file.write_bytes(file.read_bytes().replace(b"\r\ndamaged\r\n", b"\0" * 11))
    with pytest.raises(StoreUnavailable, match=re.escape(file.name)):
        EmbeddedRedis.start(restored)
    paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "-c", documented_repair(restored)]
    subprocess.run(command, env=environment(PATH=paths), input=b"y\n", check=True)
    with EmbeddedRedis.start(restored) as server, Redis.from_url(server.url) as redis:
        kept = redis.mget("lachesis:backed-up", "lachesis:before", "lachesis:damaged", "lachesis:after")
    assert kept == [b"1", b"2", None, None]
