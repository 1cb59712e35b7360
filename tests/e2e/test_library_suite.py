"""The HTTP tests that Atropos ships in its own wheel, run as they are against this service."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.service import Service
from tests.e2e.venv import atropos_python

pytestmark = pytest.mark.e2e

PLUGIN_FOLDER = Path(__file__).with_name("clients")
THEIR_PORT = 8000
SUITES = ("test_api_legacy", "test_api_compression", "test_api_messages_handling")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Serve on the one port that their tests know."""
    for address in ("127.0.0.1", "::1"):
        if is_taken(address):
            pytest.fail(f"port {THEIR_PORT} of {address} is taken, and Atropos's tests know no other: free it first")
    service = Service(tmp_path_factory.mktemp("service"), port=THEIR_PORT)
    yield service
    service.stop()


def is_taken(address: str) -> bool:
    """Return whether something listens on Atropos's port."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, THEIR_PORT)) == 0


@pytest.mark.parametrize("suite", SUITES)
def test_atroposlib_passes_its_own_http_tests(suite: str, service: Service, tmp_path: Path) -> None:
    """A plugin asks after each of them who answered, so theirs can never pass against their own server."""
    plugins = ["-p", "answered_by_lachesis", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [str(atropos_python()), "-m", "pytest", "-q", *plugins, "--pyargs", f"atroposlib.tests.{suite}"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(PLUGIN_FOLDER)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stderr[-3000:]
    assert service.process.alive
