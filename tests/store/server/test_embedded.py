"""The server of our own: it keeps what it acknowledged, whatever is killed, and nobody shares its data."""

import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from app.store.server import embedded
from app.store.server.embedded import EmbeddedRedis
from app.store.server.engine import Engine, find_server
from lachesis.wire.errors import StoreMisconfigured, StoreUnavailable
from tests.e2e.processes import is_running, open_files, wait_until

ROOT = Path(__file__).parents[3]
SERVICE = """
import sys, time
from pathlib import Path
from app.store.server.embedded import EmbeddedRedis
print(EmbeddedRedis.start(Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(params=["short", "deeper than a socket path may be", 'with spaces, 100% and "quotes" # é'])
def any_data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    names = {"short": "data", "deeper than a socket path may be": "/".join(["deeply-nested"] * 15)}
    return tmp_path / names.get(request.param, request.param)


@pytest.fixture
def killed_service() -> Iterator[Callable[[Path], int]]:
    """Start a process that starts a server on a directory, and kill it (-9); answers the server's process id."""
    left_running = []

    def start_and_kill(data_dir: Path) -> int:
        command = [sys.executable, "-c", SERVICE, data_dir]
        service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        with service:
            assert service.stdout is not None
            server = int(service.stdout.readline())
            service.kill()
        left_running.append(server)
        return server

    yield start_and_kill
    for server in left_running:
        if is_running(server):
            os.kill(server, signal.SIGKILL)


def answers(server: EmbeddedRedis) -> bool:
    with Redis.from_url(server.url) as client:
        try:
            return bool(client.ping())
        except RedisError:
            return False


def test_acknowledged_data_survives_a_killed_server_that_is_restarted(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        killed = server.pid
        client.set("group", b"\0tokens\r\n")
        os.kill(killed, signal.SIGKILL)
        wait_until("it is not there", lambda: not is_running(killed))
        wait_until("it answers", lambda: answers(server))
        assert client.get("group") == b"\0tokens\r\n"
        wait_until("the log says so", lambda: "is back" in caplog.text)
        assert server.pid != killed
    assert f"(pid {killed}) ended by itself (code -9)" in caplog.text


@pytest.mark.slow
def test_a_server_that_cannot_be_started_again_is_tried_until_it_can(
    data_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    binary, away = tmp_path / "valkey-server", tmp_path / "away"
    shutil.copy2(find_server(None)[0], binary)
    with EmbeddedRedis.start(data_dir, binary=binary) as server:
        binary.rename(away)
        os.kill(server.pid, signal.SIGKILL)
        failed = f"did not start again in {data_dir / 'redis'}, and is tried again: [Errno 2] No such file"
        wait_until("an attempt failed", lambda: failed in caplog.text)
        wait_until("another attempt failed, after a pause", lambda: caplog.text.count(failed) > 1, 60)
        away.rename(binary)
        wait_until("it answers", lambda: answers(server))
    assert caplog.text.count("ended by itself") == 1, "one server ended"


def test_a_server_that_answers_with_an_error_at_its_start_is_still_watched(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As if its append-only file could not be rewritten."""
    monkeypatch.setattr(Engine, "torn_multi_bug", True)
    monkeypatch.setattr(Engine, "check_aof_is_safe", False)
    with EmbeddedRedis.start(data_dir) as server:

        def refuse() -> None:
            raise ResponseError("ERR no rewriting")

        monkeypatch.setattr(server._client, "bgrewriteaof", refuse)
        for failures in (1, 2):
            os.kill(server.pid, signal.SIGKILL)
            wait_until("the rewriting has failed", lambda: caplog.text.count("no rewriting") == failures)  # noqa: B023
            assert answers(server)


def test_it_is_configured_to_lose_nothing_and_to_be_private(data_dir: Path) -> None:
    with EmbeddedRedis.start(data_dir, maxmemory_bytes=64 << 20, max_value_bytes=1 << 30) as server:
        with Redis.from_url(server.url, decode_responses=True) as client:
            config = client.config_get("*")
        expected = {
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "always",
            "no-appendfsync-on-rewrite": "no",
            "aof-use-rdb-preamble": "no",
            "aof-load-truncated": "yes",
            "save": "",
            "maxmemory": str(64 << 20),
            "maxmemory-policy": "noeviction",
            "proto-max-bulk-len": str(1 << 30),
            "busy-reply-threshold": "1000",
            "enable-debug-command": "no",
        }
        assert {name: config[name] for name in expected} == expected
        home = data_dir / "redis"
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert stat.S_IMODE((home / "redis.sock").stat().st_mode) == 0o700
        assert os.getsid(server.pid) == server.pid, "Ctrl-C must not reach it"


@pytest.fixture
def permissive_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes_below(directory: Path) -> dict[str, str]:
    """The modes of a directory and of all in it that differ from private ones: 0700, and 0600 for files."""
    found = {path: path.lstat().st_mode for path in (directory, *directory.rglob("*"))}
    assert len(found) > 5
    private = {path: 0o600 if stat.S_ISREG(mode) else 0o700 for path, mode in found.items()}
    return {str(path): oct(mode) for path, mode in found.items() if stat.S_IMODE(mode) != private[path]}


def test_everything_in_the_data_directory_is_private(data_dir: Path, permissive_umask: None) -> None:
    with EmbeddedRedis.start(data_dir) as server:
        with Redis.from_url(server.url) as client:
            client.set("a", "1")
            client.bgrewriteaof()
            wait_until("the file is rewritten", lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        assert modes_below(data_dir) == {}
    assert modes_below(data_dir) == {}


def test_an_existing_directory_becomes_private(data_dir: Path, permissive_umask: None) -> None:
    EmbeddedRedis.start(data_dir).stop()
    for path in (data_dir, *data_dir.rglob("*")):
        path.chmod(0o777)
    outside = data_dir.parent / "outside"
    outside.touch(0o666)
    (data_dir / "redis" / "link").symlink_to(outside)
    EmbeddedRedis.start(data_dir).stop()
    (data_dir / "redis" / "link").unlink()
    assert modes_below(data_dir / "redis") == {}
    kept = [stat.S_IMODE(path.stat().st_mode) for path in (data_dir, outside)]
    assert kept == [0o777, 0o666], "what is not ours keeps its mode"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_it_listens_on_its_socket_alone(data_dir: Path) -> None:
    with EmbeddedRedis.start(data_dir) as server:
        opened = set(map(str, open_files(server.pid)))
        kinds = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "unix")
        tables = {kind: Path(f"/proc/{server.pid}/net/{kind}") for kind in kinds}
        lines = {kind: table.read_text().splitlines()[1:] for kind, table in tables.items() if table.exists()}
    inode = {kind: 6 if kind == "unix" else 9 for kind in kinds}
    own = [(kind, line) for kind in lines for line in lines[kind] if f"socket:[{line.split()[inode[kind]]}]" in opened]
    assert {kind for kind, _ in own} == {"unix"}
    assert {line.split()[7] for _, line in own if len(line.split()) > 7} == {str(data_dir / "redis" / "redis.sock")}


def test_without_a_limit_it_may_use_half_the_memory(data_dir: Path) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        assert 0 < int(client.config_get("maxmemory")["maxmemory"]) <= machine // 2


@pytest.mark.slow
def test_the_next_service_takes_over_the_server_of_a_killed_one(
    any_data_dir: Path, killed_service: Callable[[Path], int]
) -> None:
    orphan = killed_service(any_data_dir)
    with EmbeddedRedis.start(any_data_dir, fsync="everysec", maxmemory_bytes=77 << 20) as server:
        assert server.pid == orphan
        with Redis.from_url(server.url, decode_responses=True) as client:
            own = {"appendfsync": "everysec", "maxmemory": str(77 << 20)}
            assert client.config_get("appendfsync", "maxmemory") == own
            client.set("group", "kept")
    assert not is_running(orphan)
    with EmbeddedRedis.start(any_data_dir) as server, Redis.from_url(server.url) as client:
        assert server.pid != orphan
        assert client.get("group") == b"kept"


@pytest.mark.slow
def test_a_server_that_was_taken_over_is_healed_too(data_dir: Path, killed_service: Callable[[Path], int]) -> None:
    orphan = killed_service(data_dir)
    with EmbeddedRedis.start(data_dir) as server:
        os.kill(orphan, signal.SIGKILL)
        wait_until("another one runs", lambda: server.pid != orphan and answers(server))


@pytest.mark.slow
def test_a_server_left_hanging_is_ended_and_its_data_kept(
    data_dir: Path, killed_service: Callable[[Path], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        client.set("group", "kept")
    orphan = killed_service(data_dir)
    os.kill(orphan, signal.SIGSTOP)
    monkeypatch.setattr(embedded, "_HUNG_S", 0.1)
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        assert not is_running(orphan), "two servers on the same data would ruin it"
        assert client.get("group") == b"kept"


def test_a_second_service_on_the_same_data_is_refused_and_told_whose_it_is(data_dir: Path) -> None:
    with EmbeddedRedis.start(data_dir) as server:
        with pytest.raises(StoreMisconfigured, match=rf"running service \(pid {os.getpid()}\)") as refused:
            EmbeddedRedis.start(data_dir)
        assert "\n" not in str(refused.value)
        assert answers(server), "the first is not disturbed"


def test_the_lock_falls_with_the_service_not_with_the_server(
    data_dir: Path, killed_service: Callable[[Path], int]
) -> None:
    assert is_running(killed_service(data_dir))
    EmbeddedRedis.start(data_dir).stop()


def test_stopping_leaves_neither_process_nor_temporary_directory(any_data_dir: Path) -> None:
    server = EmbeddedRedis.start(any_data_dir)
    with Redis.from_url(server.url) as client:
        socket = Path(client.connection_pool.connection_kwargs["path"])
    assert socket.is_socket()
    server.stop()
    assert not is_running(server.pid)
    assert not socket.exists()
    assert socket.parent == any_data_dir / "redis" or not socket.parent.exists()
    server.stop()  # twice is once


def test_an_older_engine_does_not_touch_newer_data(data_dir: Path) -> None:
    (data_dir / "redis").mkdir(parents=True)
    record = data_dir / "redis" / "engine.json"
    record.write_text('{"name": "Valkey", "version": "99.0.0"}')
    with pytest.raises(StoreMisconfigured, match=r"written by Valkey 99\.0\.0"):
        EmbeddedRedis.start(data_dir)
    assert "99.0.0" in record.read_text()


@pytest.mark.parametrize(
    ("engine", "data", "may"),
    [
        (("Valkey", "9.1.2"), ("Valkey", "9.1.2"), True),
        (("Valkey", "9.1.3"), ("Valkey", "8.1.8"), True),
        (("Valkey", "8.1.8"), ("Valkey", "9.1.2"), False),
        (("Valkey", "9.1.2"), ("Redis", "7.0.15"), True),
        (("Valkey", "9.1.2"), ("Redis", "8.2.3"), False),
        (("Redis", "8.2.3"), ("Valkey", "8.1.8"), False),
    ],
)
def test_which_engine_may_open_whose_data(engine: tuple[str, str], data: tuple[str, str], may: bool) -> None:
    assert Engine.parse(*engine).can_open(Engine.parse(*data)) is may


@pytest.mark.parametrize(
    ("engine", "has_it"),
    [
        (("Valkey", "9.1.2"), False),
        (("Valkey", "9.0.4"), True),
        (("Valkey", "8.1.10"), False),
        (("Valkey", "8.1.9"), True),
        (("Redis", "8.2.3"), True),
    ],
)
def test_which_engines_have_the_torn_multi_bug(engine: tuple[str, str], has_it: bool) -> None:
    assert Engine.parse(*engine).torn_multi_bug is has_it


def installed_engines() -> list[Path | None]:
    """The wheel's and, where there are others, those: the repair of torn files matters for them."""
    others = {shutil.which(name) for name in ("valkey-server", "redis-server")} | {os.environ.get("TEST_REDIS_BIN")}
    return [None, *(Path(found) for found in sorted(filter(None, others)))]


@pytest.mark.parametrize("binary", installed_engines(), ids=str)
@pytest.mark.slow
@pytest.mark.parametrize("cut_bytes", [30, 700, 1900])
def test_what_is_written_after_a_torn_start_survives_the_next_crash(
    data_dir: Path, binary: Path | None, cut_bytes: int
) -> None:
    with EmbeddedRedis.start(data_dir, binary=binary) as server, Redis.from_url(server.url) as client:
        client.eval("for i = 1, 20 do redis.call('SET', 'old' .. i, string.rep('x', 100)) end", 0)
    (written,) = (data_dir / "redis" / "appendonlydir").glob("*.incr.aof")
    os.truncate(written, written.stat().st_size - cut_bytes)
    with EmbeddedRedis.start(data_dir, binary=binary) as server, Redis.from_url(server.url) as client:
        assert client.dbsize() == 0, "half a script is none"
        for number in range(50):
            client.set(f"new{number}", number)
        killed = server.pid
        os.kill(killed, signal.SIGKILL)
        wait_until("another one runs", lambda: server.pid != killed and answers(server))
        assert client.dbsize() == 50


def test_a_binary_that_is_no_server_is_refused_by_the_name_of_its_setting(data_dir: Path) -> None:
    with pytest.raises(StoreMisconfigured, match="LACHESIS_REDIS_BIN=/bin/true does not run"):
        EmbeddedRedis.start(data_dir, binary=Path("/bin/true"))


def test_a_binary_may_be_a_name_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "a-server-elsewhere"
    named.symlink_to(find_server(None)[0])
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_server(Path(named.name))[0] == named


def test_an_impossible_data_directory_is_refused_by_the_name_of_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreMisconfigured, match="LACHESIS_DATA_DIR"):
        EmbeddedRedis.start(tmp_path / "file" / "data")


def test_a_server_that_does_not_start_is_reported_with_its_last_words(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    EmbeddedRedis.start(data_dir).stop()
    manifest = data_dir / "redis" / "appendonlydir" / "appendonly.aof.manifest"
    manifest.write_text("nonsense")
    with caplog.at_level(logging.CRITICAL), pytest.raises(StoreUnavailable) as caught:
        EmbeddedRedis.start(data_dir)
    assert f"{data_dir}/redis/redis.log says more" in caught.value.remedy
    assert "MANIFEST" in caught.value.detail
    assert "Send the request again" not in str(caught.value)
    manifest.unlink()
    EmbeddedRedis.start(data_dir).stop()  # the failed start gave the directory back


@pytest.mark.slow
def test_what_was_deleted_leaves_the_append_only_file(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_LARGE_FILE_BYTES", 10 << 20)
    monkeypatch.setattr(embedded, "_LOOK_AT_FILE_S", 0.1)
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:

        def size() -> int:
            return int(client.info("persistence")["aof_current_size"])

        for n in range(40):
            client.set(f"payload {n}", b"x" * (1 << 20))
        client.set("kept", "1")
        assert size() > 40 << 20
        client.delete(*(f"payload {n}" for n in range(40)))
        wait_until("the file is rewritten", lambda: size() < 1 << 20)
        assert client.get("kept") == b"1"
        rewrites = client.info("stats")["total_forks"]
        client.set("more", b"x" * (11 << 20))
        server._rewrite_what_was_deleted()
        assert client.info("stats")["total_forks"] == rewrites, "data that is there is no reason"


def test_a_server_whose_file_was_turned_off_is_not_restarted(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its memory has the data. Redis then reports no size of the file."""
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        pid = server.pid
        client.config_set("appendonly", "no")
        for name, value in (("_UNUSED_BYTES", -(1 << 40)), ("_LOOKS_BEFORE_RESTART", 1)):
            monkeypatch.setattr(embedded, name, value)
        server._rewrite_what_was_deleted()
        server._return_memory()
        assert server.pid == pid


@pytest.mark.slow
def test_a_rewrite_that_fails_is_tried_again_after_growing_pauses(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (("_LARGE_FILE_BYTES", 10 << 20), ("_LOOK_AT_FILE_S", 0.1), ("_REWRITE_PAUSE_S", 0.5)):
        monkeypatch.setattr(embedded, name, value)
    obstacle = data_dir / "redis" / "appendonlydir" / "temp-appendonly.aof.manifest"
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:

        def size() -> int:
            return int(client.info("persistence")["aof_current_size"])

        obstacle.mkdir()
        client.set("payload", b"x" * (11 << 20))
        client.delete("payload")
        wait_until("it has failed twice", lambda: caplog.text.count("could not rewrite") >= 2)
        assert re.findall(r"next attempt is in (\S+) s", caplog.text)[:2] == ["0.5", "1"]
        obstacle.rmdir()
        wait_until("the file is rewritten", lambda: size() < 1 << 20)


@pytest.mark.slow
def test_a_rewrite_that_failed_is_not_tried_at_each_look(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (("_LARGE_FILE_BYTES", 10 << 20), ("_LOOK_AT_FILE_S", 0.1), ("_REWRITE_PAUSE_S", 3600.0)):
        monkeypatch.setattr(embedded, name, value)
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        (data_dir / "redis" / "appendonlydir" / "temp-appendonly.aof.manifest").mkdir()
        client.set("payload", b"x" * (11 << 20))
        client.delete("payload")
        wait_until("it has failed", lambda: "could not rewrite" in caplog.text)
        before, own_calls = info_calls(client), 0

        def has_looked() -> bool:
            nonlocal own_calls
            own_calls += 1
            return info_calls(client) - before - own_calls > 4 * 10  # each look asks four times

        wait_until("it has looked ten times", has_looked)
        assert client.info("commandstats")["cmdstat_bgrewriteaof"]["calls"] == 1
        assert caplog.text.count("could not rewrite") == 1


def responds(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False


@pytest.mark.slow
def test_an_almost_empty_server_returns_the_memory_of_deleted_data(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_LARGE_FILE_BYTES", 10 << 20), ("_UNUSED_BYTES", 60 << 20), ("_LOOK_AT_FILE_S", 0.1)):
        monkeypatch.setattr(embedded, name, value)
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        first = server.pid

        def resident_bytes() -> int:
            return int(client.info("memory")["used_memory_rss"])

        # Values below the size from which the C library maps each by itself. Smaller ones between them stay: without
        # those it could return the memory above the last one.
        keys = [f"payload {n}" for n in range(1000)]
        for n, key in enumerate(keys):
            client.set(key, b"x" * (100 << 10))
            client.set(f"between {n}", b"x" * (2 << 10))
        client.set("kept", "1")
        wait_until("the server has counted its memory", lambda: resident_bytes() > 90 << 20, 60)
        assert server.pid == first, "data that is there is no reason"
        client.delete(*keys)
        wait_until("the server is restarted", lambda: server.pid != first, 60)
        wait_until("it answers", lambda: responds(client), 60)
        assert resident_bytes() < 40 << 20
        assert client.get("kept") == b"1"
        second = server.pid
        client.set("more", b"x" * (1 << 20))
        first_calls, own_calls = info_calls(client), 0

        def has_looked() -> bool:
            nonlocal own_calls
            own_calls += 1
            # Each look asks four times. It restarts a server after the fifth.
            return server.pid != second or info_calls(client) - first_calls - own_calls > 4 * 10

        wait_until("it has looked ten times", has_looked, 60)
        assert server.pid == second


def info_calls(client: Redis) -> int:
    """Count the calls of INFO that the server has answered."""
    return int(client.info("commandstats")["cmdstat_info"]["calls"])
