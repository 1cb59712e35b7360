"""Root and the user of the service share a data directory. Root must not lock the service out of its own data."""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.store.server.backup import make_backup, restore_backup
from app.store.server.data_dir import ServerDir, refuse_root
from app.store.server.embedded import EmbeddedRedis
from lachesis.wire.errors import StoreMisconfigured
from tests.forked import environment, run_module

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")

SERVICE = 10_001  # the user of the service


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user of the service, which it can reach."""
    with tempfile.TemporaryDirectory() as made:
        os.chown(made, SERVICE, SERVICE)
        yield Path(made)


def exit_code_as_service(work: Callable[[], None]) -> int:
    """Do something as the user of the service, in a process of its own. Return 0 if it went well."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # other threads of pytest only wait
        child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(SERVICE)
            os.setuid(SERVICE)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def give_to_service(data_dir: Path) -> None:
    for path in (data_dir, *data_dir.rglob("*")):
        os.chown(path, SERVICE, SERVICE, follow_symlinks=False)


def test_a_file_of_root_does_not_stop_the_service(folder: Path) -> None:
    data_dir = folder / "data"

    def take() -> None:
        ServerDir.take(data_dir).give_back()

    assert exit_code_as_service(take) == 0
    (data_dir / "redis" / "redis.log.1.gz").write_text("rotated by root")
    assert exit_code_as_service(take) == 0


def test_a_backup_that_root_makes_leaves_files_of_the_service_alone(folder: Path, tmp_path: Path) -> None:
    data_dir = folder / "data"
    with EmbeddedRedis.start(data_dir) as server:
        give_to_service(data_dir)
        make_backup(server.url, data_dir, tmp_path / "backup", "0.1.0")
        owners = {path.name: path.stat().st_uid for path in (data_dir / "redis").iterdir()}
    assert set(owners.values()) == {SERVICE}, owners


@pytest.mark.parametrize("words", [("token", "list"), ("token", "create", "--role", "operator"), ("backup", "copy")])
def test_root_starts_no_server_on_data_of_the_service(folder: Path, words: tuple[str, ...]) -> None:
    data_dir = folder / "data"
    EmbeddedRedis.start(data_dir).stop()
    give_to_service(data_dir)
    before = {path: path.stat().st_mtime_ns for path in data_dir.rglob("*")}
    done = run_module("app", *words, env=environment(LACHESIS_DATA_DIR=str(data_dir)), cwd=folder)
    assert (done.returncode, f"belongs to user {SERVICE}" in done.stderr) == (1, True), done.stderr
    assert {path: path.stat().st_mtime_ns for path in data_dir.rglob("*")} == before


def test_root_restores_nothing_among_data_of_the_service(folder: Path, tmp_path: Path) -> None:
    home = folder / "redis"
    home.mkdir()
    give_to_service(folder)
    with pytest.raises(StoreMisconfigured, match=f"{home} belongs to user {SERVICE}") as caught:
        restore_backup(tmp_path, folder, None)
    assert "sudo -u" in caught.value.remedy
    assert list(home.iterdir()) == []


def test_root_may_use_its_own_data_and_folders_without_data(folder: Path, tmp_path: Path) -> None:
    """In a container, a service that runs as root may keep its data in a folder of the host."""
    refuse_root(folder)
    refuse_root(tmp_path / "missing")
    ServerDir.take(tmp_path).give_back()
    refuse_root(tmp_path)
