"""Virtual environments for what runs beside the service: their own, so that nothing of theirs leaks into its own."""

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
VENV = REPOSITORY / ".venv-e2e"

_MARKER = "built-from"


def atropos_python() -> Path:
    """Give the Python that has ``atroposlib`` and what it needs; see `python_with`."""
    return python_with(REQUIREMENTS, VENV)


def trackers_python() -> Path:
    """Give the Python that has the libraries of `examples/trackers.py`; see `python_with`."""
    return python_with(REQUIREMENTS.with_name("trackers.txt"), REPOSITORY / ".venv-trackers")


def python_with(requirements: Path, venv: Path) -> Path:
    """Give the Python that has what a file requires, building its environment first if it is out of date.

    The environment is keyed on this Python's version and on the hash of the file: a second call only reads one small
    file. Safe to call from several processes at once.

    Args:
        requirements: All requirements, also those of requirements: pip installs nothing else. Atroposlib's own list
            would add gigabytes that our clients do not import.
        venv: Where the environment is, or where to create it.

    Raises:
        subprocess.CalledProcessError: pip failed; its own message says why.
    """
    python = venv / "bin" / "python"
    with requirements.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_built(requirements, venv):
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
            install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps"]
            lazily = [] if sys.dont_write_bytecode else ["--no-compile"]  # most modules are never imported
            subprocess.run([*install, *lazily, "--requirement", str(requirements)], check=True)
            (venv / _MARKER).write_text(_key(requirements))
    return python


def is_built(requirements: Path, venv: Path) -> bool:
    """Return whether an environment has what a file requires."""
    marker = venv / _MARKER
    return marker.exists() and marker.read_text() == _key(requirements)


def _key(requirements: Path) -> str:
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    return f"{sys.version_info.major}.{sys.version_info.minor} {digest}"


if __name__ == "__main__":
    print(atropos_python(), trackers_python(), sep="\n")
