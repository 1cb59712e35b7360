"""The service prints to stdout. It continues if stdout is closed or full."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.processes import wait_until
from tests.ports import free_port
from tests.process.test_serve import ROOT, workers

pytestmark = pytest.mark.long
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the small application of `serve_app.py` with this stdout. What runs is ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def started_with(stdout: int, **settings: str) -> subprocess.Popen[bytes]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("LACHESIS_")}
        env = own | {"LACHESIS_PORT": "0", "LACHESIS_DATA_DIR": str(tmp_path), "PYTHONPATH": "clients"} | settings
        command = [sys.executable, "-m", "tests.serve_app"]
        started.append(
            subprocess.Popen(command, cwd=ROOT, env=env, stdout=stdout, stderr=subprocess.PIPE, start_new_session=True)
        )
        return started[-1]

    yield started_with
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_service_whose_reader_ended_first_stops_in_good_order(start: Start) -> None:
    """As under `| tee`, which the same Ctrl-C ends."""
    process = start(subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    assert b"listening" in process.stdout.readline()
    process.stdout.close()
    process.terminate()
    assert (process.wait(10), process.stderr.read()) == (0, b"")


@workers
def test_a_service_that_cannot_print_its_first_line_serves_and_stops(start: Start, workers: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    port = free_port()
    process = start(writer, LACHESIS_WORKERS=workers, LACHESIS_PORT=str(port))
    os.close(writer)

    def has_given_up_printing() -> bool:
        return process.poll() is not None or os.readlink(f"/proc/{process.pid}/fd/1") == os.devnull

    wait_until("it has given up printing, or ends", has_given_up_printing)
    httpx.get(f"http://127.0.0.1:{port}/pid", trust_env=False).raise_for_status()
    process.terminate()
    assert process.stderr
    assert (process.wait(30), process.stderr.read()) == (0, b"")
