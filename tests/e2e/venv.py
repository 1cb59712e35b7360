"""The virtual environment the Atropos clients run in: their own, so that nothing of theirs leaks into the service's."""

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
VENV = REPOSITORY / ".venv-e2e"


def atropos_python() -> Path:
    """Give the Python that has ``atroposlib`` and what it needs, building its environment first if it is out of date.

    The environment is keyed on this Python's version and on the hash of ``requirements.txt``: a second call only reads
    one small file. Safe to call from several processes at once.

    Raises:
        subprocess.CalledProcessError: pip failed; its own message says why.
    """
    key = f"{sys.version_info.major}.{sys.version_info.minor} {hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()}"
    marker = VENV / "built-from"
    python = VENV / "bin" / "python"
    with REQUIREMENTS.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (marker.exists() and marker.read_text() == key):
            subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
            # The file is complete: atroposlib's own list would add gigabytes that no client of ours imports.
            install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*install, "--requirement", str(REQUIREMENTS)], check=True)
            marker.write_text(key)
    return python


if __name__ == "__main__":
    print(atropos_python())
