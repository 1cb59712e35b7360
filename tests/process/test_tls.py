"""TLS of the service as processes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.authority import Authority, TlsSocket
from tests.process.test_serve import ROOT, Serve, serve, workers

__all__ = ["serve"]  # a fixture
pytestmark = pytest.mark.long


@workers
def test_every_worker_speaks_tls_and_shows_a_new_certificate(serve: Serve, tmp_path: Path, workers: str) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("service", "127.0.0.1")
    trust = authority.client_context()
    own = {"LACHESIS_TLS_CERT": str(cert), "LACHESIS_TLS_KEY": str(key)}
    service = serve(["app", "serve"], LACHESIS_WORKERS=workers, **own)
    assert service.url.startswith("https://127.0.0.1:")
    port = service.url.rpartition(":")[2]

    def serials() -> set[str]:
        found = set()
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", int(port))) as plain:
                tls = TlsSocket(plain, trust, "127.0.0.1")
                found.add(str((tls.tls.getpeercert() or {})["serialNumber"]))
        return found

    before = serials()
    authority.issue("service", "127.0.0.1")
    assert len(before) == len(serials()) == 1
    assert before != serials()
    env = {**os.environ, **own, "LACHESIS_PORT": port, "PYTHONPATH": "clients"}

    def error_of(*module: str, **settings: str) -> str:
        command = [sys.executable, "-m", *module]
        ended = subprocess.run(command, cwd=ROOT, env=env | settings, capture_output=True, text=True, check=False)
        assert (ended.returncode != 0) == bool(ended.stderr)
        return ended.stderr

    assert not error_of("app.process.health_check")
    assert not error_of("app", "status")
    other = {"LACHESIS_URL": service.url, "LACHESIS_TLS_CERT": "", "LACHESIS_TLS_KEY": ""}
    assert "CERTIFICATE_VERIFY_FAILED" in error_of("app", "status", **other)
    assert not error_of("app", "status", **other, LACHESIS_CA_FILE=str(authority.file))


def test_a_wrong_certificate_stops_the_start_with_its_setting(serve: Serve) -> None:
    service = serve(["app", "serve"], LACHESIS_TLS_CERT="/nowhere")
    assert service.process.wait(30) == 1
    assert "LACHESIS_TLS_CERT=/nowhere: No such file or directory" in service.complained
