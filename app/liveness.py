"""Whether another process is still there."""

import os
import socket
from pathlib import Path


def process_exists(pid: int) -> bool:
    """Whether process ``pid`` runs; one that has ended and was not collected by its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self/stat").exists()


def pid_space() -> str:
    """Name where process ids mean what they mean here: this host, and this PID namespace on it."""
    namespace = Path("/proc/self/ns/pid")
    return f"{socket.gethostname()}:{namespace.stat().st_ino if namespace.exists() else 0}"
