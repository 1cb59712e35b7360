"""Somebody removes files of a running server: a cleaner of temporary directories, or a person in the wrong place."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from redis import Redis

from app.store.server import embedded
from app.store.server.data_dir import known_socket
from app.store.server.embedded import EmbeddedRedis
from tests.e2e.processes import wait_until
from tests.store.server.test_embedded import answers

DEEP = Path(*["deeply-nested"] * 15)  # deeper than the path of a socket may be


def _info_calls(client: Redis) -> int:
    """Count the calls of INFO that the server has answered. Each look at the server makes some."""
    return int(client.info("commandstats")["cmdstat_info"]["calls"])


@pytest.mark.parametrize("place", [Path("data"), DEEP])
def test_a_server_whose_socket_was_removed_is_restarted_at_the_same_place(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that cleans temporary directories does not know that clients need it."""
    data_dir = tmp_path / place
    monkeypatch.setattr(embedded, "_LOOK_AT_FILE_S", 0.1)
    with EmbeddedRedis.start(data_dir) as server, Redis.from_url(server.url) as client:
        client.set("kept", "1")
        first, socket = server.pid, known_socket(data_dir)
        socket.unlink()
        wait_until("a new client reaches it", lambda: answers(server), 60)
        assert server.pid != first
        assert (client.get("kept"), known_socket(data_dir)) == (b"1", socket)


def test_a_server_that_dies_after_its_temporary_directory_is_back_at_the_same_place(tmp_path: Path) -> None:
    data_dir = tmp_path / DEEP
    with EmbeddedRedis.start(data_dir) as server:
        socket = known_socket(data_dir)
        shutil.rmtree(socket.parent)
        os.kill(server.pid, signal.SIGKILL)
        wait_until("a new client reaches it", lambda: answers(server), 60)
        assert known_socket(data_dir) == socket
    assert not socket.parent.exists()


def test_a_server_that_dies_after_its_log_was_moved_away_is_back(tmp_path: Path) -> None:
    """An operator may rotate logs, or remove one to free disk space."""
    with EmbeddedRedis.start(tmp_path) as server:
        (tmp_path / "redis" / "redis.log").rename(tmp_path / "rotated.log")
        killed = server.pid
        os.kill(killed, signal.SIGKILL)
        wait_until("another one runs", lambda: server.pid != killed and answers(server), 60)


@pytest.mark.parametrize("removed", ["appendonlydir", "appendonlydir/appendonly.aof.1.incr.aof"])
def test_a_server_whose_data_was_removed_goes_on_and_the_log_says_so_once(
    tmp_path: Path, removed: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the only copy. A restart would lose it."""
    monkeypatch.setattr(embedded, "_LOOK_AT_FILE_S", 0.1)
    with EmbeddedRedis.start(tmp_path) as server, Redis.from_url(server.url) as client:
        client.set("kept", "1")
        first, path = server.pid, tmp_path / "redis" / removed
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        (tmp_path / "redis" / "redis.sock").unlink()
        wait_until("it is said", lambda: "before you have exported" in caplog.text, 60)
        before, own_calls = _info_calls(client), 0

        def there_were_looks() -> bool:
            nonlocal own_calls
            own_calls += 1
            return _info_calls(client) - own_calls > before + 20

        wait_until("there were more looks", there_were_looks, 60)
        assert (server.pid, client.get("kept")) == (first, b"1")
        assert caplog.text.count("before you have exported") == 1
