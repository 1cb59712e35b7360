"""The example runs as it is."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_example_loads_an_epoch_in_two_goes() -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "clients")}
    command = [sys.executable, str(ROOT / "examples/loader.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    *batches, last = done.stdout.splitlines()
    assert len(batches) == 2
    assert all(line.startswith("epoch 0: images (4, ") for line in batches)
    assert last == "restored: 10 episodes are left of the epoch"
