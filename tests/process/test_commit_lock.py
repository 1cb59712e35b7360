"""The API processes of a service share a lock for their commits, as long as the service runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import open_files
from tests.e2e.service import Service
from tests.e2e.venv import REPOSITORY

pytestmark = pytest.mark.long


def test_the_processes_share_a_lock_until_the_service_ends(tmp_path: Path) -> None:
    service = Service(tmp_path, 2)
    try:
        locks = [file for pid in service.worker_pids() for file in open_files(pid) if "lachesis-commits-" in file.name]
        assert len(locks) == 2
        assert len(set(locks)) == 1
    finally:
        service.stop()
    assert not locks[0].exists()


def test_a_lock_needs_a_place(tmp_path: Path) -> None:
    program = "import sys, tempfile; from app.cli.main import main; tempfile.tempdir = sys.argv.pop(); main()"
    own = {name: value for name, value in os.environ.items() if not name.startswith("LACHESIS_")}
    settings = {"LACHESIS_PORT": "0", "LACHESIS_DATA_DIR": str(tmp_path / "data"), "LACHESIS_WORKERS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", program, "serve", str(tmp_path / "missing")],
        cwd=REPOSITORY,
        env=own | {"PYTHONPATH": "clients"} | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "cannot make a temporary file to lock: " in line
    assert "TMPDIR" in line
