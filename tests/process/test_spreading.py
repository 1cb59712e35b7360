"""Connections are spread over the API processes."""

import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.processes import open_files, wait_until
from tests.e2e.service import Service

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems do not spread connections over sockets"),
]

CONNECTIONS = 64  # all of them miss one of four processes once in 20 million runs


def sockets(pid: int) -> int:
    return sum(file.name.startswith("socket:") for file in open_files(pid))


def test_each_process_gets_connections_of_a_burst(tmp_path: Path) -> None:
    service = Service(tmp_path, 4)
    try:
        pids = service.worker_pids()
        before = {pid: sockets(pid) for pid in pids}
        with ExitStack() as connections:
            for _ in range(CONNECTIONS):
                connections.enter_context(socket.create_connection(("127.0.0.1", service.port)))
            wait_until("all are accepted", lambda: sum(sockets(pid) - before[pid] for pid in pids) >= CONNECTIONS)
            assert all(sockets(pid) > before[pid] for pid in pids)
    finally:
        service.stop()
