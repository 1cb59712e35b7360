"""Tell whether a process still runs, and where its id is unique."""

import os
import socket
from pathlib import Path


def process_exists(pid: int) -> bool:
    """Return whether process ``pid`` runs. A zombie, which its parent has not collected, does not run."""
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
    """Return the name of the space in which process ids are unique: this host, and its PID namespace."""
    namespace = Path("/proc/self/ns/pid")
    return f"{socket.gethostname()}:{namespace.stat().st_ino if namespace.exists() else 0}"
