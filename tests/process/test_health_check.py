"""The health check of the image, against a service as a process."""

import os
import socket
import subprocess
import sys

import httpx
import pytest

from tests.ports import free_port
from tests.process.test_serve import PATHS, Serve, serve

__all__ = ["serve"]  # a fixture
pytestmark = pytest.mark.long


def can_listen(host: str) -> bool:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::"])
def test_it_asks_the_address_of_the_service_and_no_proxy(serve: Serve, host: str) -> None:
    if not can_listen(host):
        pytest.skip("this machine has no such address")
    service = serve(["app", "serve"], LACHESIS_HOST=host, LACHESIS_INSECURE="1")
    proxy = f"http://127.0.0.1:{free_port()}"  # nobody listens there
    env = {
        **{name: value for name, value in os.environ.items() if name.lower() != "no_proxy"},
        **dict.fromkeys(("HTTP_PROXY", "http_proxy"), proxy),
        "LACHESIS_HOST": host,
        "LACHESIS_PORT": str(httpx.URL(service.url).port),
        "PYTHONPATH": PATHS,
    }
    check = [sys.executable, "-m", "app.process.health_check"]
    done = subprocess.run(check, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
