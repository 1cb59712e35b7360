"""API processes that die: others replace them."""

import os
import signal
from datetime import datetime
from pathlib import Path

import pytest

from tests.e2e.processes import is_running, wait_until
from tests.process.test_serve import Serve, Served, serve

__all__ = ["serve"]  # a fixture
pytestmark = pytest.mark.long


def test_a_killed_worker_is_replaced_and_every_new_connection_is_answered(serve: Serve) -> None:
    service = serve(LACHESIS_WORKERS="2")
    killed, other = service.worker_pids(2)
    os.kill(killed, signal.SIGKILL)
    answered = {service.ask() for _ in range(10)}  # by the other one, or by the replacement when it is there
    assert killed not in answered
    (replacement,) = service.worker_pids(2) - {other}
    assert replacement != killed
    assert f"API process {killed} ended by itself (code -9)" in service.complained


def test_workers_start_though_the_path_of_temporary_files_is_too_long_for_a_socket(
    serve: Serve, tmp_path: Path
) -> None:
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    service = serve(LACHESIS_WORKERS="2", TMPDIR=str(folder))
    assert len(service.worker_pids(2)) == 2


def test_workers_whose_fork_server_is_killed_end_and_are_replaced(serve: Serve) -> None:
    service = serve(LACHESIS_WORKERS="2")
    left = service.worker_pids(2)
    (fork_server,) = {int(stat_of(pid)[1]) for pid in left}
    os.kill(fork_server, signal.SIGKILL)
    wait_until("its workers end", lambda: not any(map(is_running, left)))
    assert not left & service.worker_pids(2)
    service.process.terminate()
    assert service.process.wait(20) == 0


def stat_of(pid: int) -> list[str]:
    """Give what the kernel says of a process after its name: its state, its parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def test_a_replaced_worker_has_the_settings_that_the_service_has_read(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("LACHESIS_SHUTDOWN_GRACE_S=7\n")
    service = serve(LACHESIS_WORKERS="2")
    killed = service.worker_pids(2)
    (tmp_path / ".env").write_text("LACHESIS_SHUTDOWN_GRACE_S=8\n")  # for the next start
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert not killed & service.worker_pids(2)
    assert service.ask("/grace") == 7


def test_a_worker_that_cannot_start_is_tried_again_after_growing_pauses(serve: Serve, tmp_path: Path) -> None:
    service = serve(LACHESIS_WORKERS="2", FAIL_IF=str(tmp_path / "failing"))
    killed, _ = service.worker_pids(2)
    (tmp_path / "failing").touch()
    os.kill(killed, signal.SIGKILL)

    def restarts() -> list[datetime]:
        lines = [line for line in service.complained.splitlines() if "starting another" in line]
        return [datetime.fromisoformat(line.split()[0]) for line in lines]

    wait_until("it was started four times", lambda: len(restarts()) >= 4)
    first, *_, fourth = restarts()[:4]
    assert (fourth - first).total_seconds() > 1 + 2 + 3.9
    (tmp_path / "failing").unlink()
    assert killed not in service.worker_pids(2)


def stop(service: Served, worker: int) -> None:
    """Stop a worker, and wait until the supervisor waits for its answer. It does so for 30 s."""
    os.kill(worker, signal.SIGSTOP)

    def is_asked() -> bool:
        service.process.send_signal(signal.SIGURG)
        return service.complained.count(" in _ping\n") > 25  # many looks: the other one answers at once

    wait_until("the supervisor waits for its answer", is_asked)


def test_a_worker_that_dies_during_a_health_check_is_replaced_at_once(serve: Serve) -> None:
    service = serve(LACHESIS_WORKERS="2")
    killed, other = service.worker_pids(2)
    stop(service, killed)
    os.kill(killed, signal.SIGKILL)
    ended = f"API process {killed} ended by itself"
    wait_until("its end is noticed", lambda: ended in service.complained, 15)
    (replacement,) = service.worker_pids(2) - {other}
    assert replacement != killed


def test_signals_end_the_service_at_once_although_a_worker_hangs(serve: Serve) -> None:
    service = serve(LACHESIS_WORKERS="2")
    hung, other = service.worker_pids(2)
    stop(service, hung)
    service.process.terminate()
    wait_until("the other one ends", lambda: not is_running(other), 15)
    assert is_running(hung), "it has its time to finish requests"
    service.process.terminate()
    assert service.process.wait(15) == 0
    assert not is_running(hung)
    assert service.complained.count("ended by itself") == 0
