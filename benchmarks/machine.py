"""The machine and the versions that figures hold for."""

import gc
import os
import platform
import re
import statistics
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from app.store.server.engine import find_server
from benchmarks.replay_others import REVERB_REQUIREMENTS
from tests.e2e.venv import REQUIREMENTS

FSYNCS = 100

_PART_BYTES = 1 << 28
_TOUCHED = 0.8  # of the memory that is free
_PAGE_BYTES = 4096


def prepare() -> None:
    """Make the machine and this process ready to measure.

    A virtual machine takes 40 times as long for a page of memory that it has never used, and Valkey uses new pages all
    the time. So all free memory is used once. The load generator's own garbage collection takes 60 ms over all modules,
    so these are left out of it.
    """
    available = re.search(r"^MemAvailable:\s*(\d+)", _read("/proc/meminfo"), re.MULTILINE)
    parts = int(int(available[1]) * 1024 * _TOUCHED) // _PART_BYTES if available else 0
    touched = [np.empty(_PART_BYTES, np.uint8) for _ in range(parts)]
    for part in touched:
        part[::_PAGE_BYTES] = 1
    del touched
    gc.collect()
    gc.freeze()


def describe() -> dict[str, str | int | float]:
    """Name what was measured on and with."""
    cpu = re.search(r"^model name\s*: (.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+)", _read("/proc/meminfo"), re.MULTILINE)
    engine = find_server(None)[1]
    return {
        "cpu": cpu[1] if cpu else platform.processor(),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(int(memory[1]) / 1e6, 1) if memory else 0,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "uvicorn": version("uvicorn"),
        "redis": f"{engine.name} {'.'.join(map(str, engine.version))}, appendfsync always",
        "atroposlib": _required("atroposlib", REQUIREMENTS),
        "dm-reverb": _required("dm-reverb", REVERB_REQUIREMENTS),
        "fsync_ms": round(fsync_ms(), 2),
        "commit": _commit(),
    }


def fsync_ms() -> float:
    """Wait for the disk as Redis does before each answer: the median of appending 4 KB and `fdatasync`."""
    waits_s = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(FSYNCS):
            began = time.perf_counter()
            os.write(file.fileno(), b"x" * 4096)
            os.fdatasync(file.fileno())
            waits_s.append(time.perf_counter() - began)
    return statistics.median(waits_s) * 1000


def _required(package: str, requirements: Path) -> str:
    found = re.search(f"^{package}==(.*)$", requirements.read_text(), re.MULTILINE)
    return found[1] if found else ""


def _read(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def _commit() -> str:
    git = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(git, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip()
