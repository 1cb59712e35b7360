"""The service under test, as an operator starts it, and the ways an operator's bad day ends it."""

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.processes import Process, children, command_line, descendants, kill
from tests.e2e.venv import REPOSITORY
from tests.ports import free_port

READY_WITHIN_S = 120.0


class Service:
    """``python -m app serve`` with its own Redis and its own data directory, of this checkout or of another one.

    Attributes:
        headers: What to send with each request: the operator's token, if the service is closed.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 1,
        port: int | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        tree: Path = REPOSITORY,
        closed: bool = False,
    ) -> None:
        self.folder = folder
        self._tree = tree
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._env = {
            "LACHESIS_HOST": "127.0.0.1",
            "LACHESIS_PORT": str(self.port),
            "LACHESIS_WORKERS": str(workers),
            "LACHESIS_DATA_DIR": str(folder / "data"),
            "PYTHONPATH": os.pathsep.join([str(tree), str(tree / "clients")]),
            **(settings or {}),
        }
        self.headers: dict[str, str] = {}
        if closed:
            token = secrets.token_hex(32)
            (folder / "operator-token").write_text(token)
            self._env["LACHESIS_ADMIN_TOKEN_FILE"] = str(folder / "operator-token")
            self.headers = {"Authorization": f"Bearer {token}"}
        self.start()

    def start(self) -> None:
        """Start it and wait until it says where it listens."""
        log = self.folder / "service.log"
        said_before = log.read_text().count("listening on") if log.exists() else 0
        self.process = Process("service", [sys.executable, "-m", "app", "serve"], log, self._env, self._tree)
        self.process.wait_until(
            "the service listens", lambda: log.read_text().count("listening on") > said_before, READY_WITHIN_S
        )

    def token(self, role: str, **scope: Any) -> str:
        """Create a token."""
        return str(self.send("POST", "/v1/tokens", role=role, **scope)["token"])

    def status(self) -> dict[str, Any]:
        """Read ``/status``."""
        return self.read("/status")

    def read(self, path: str) -> dict[str, Any]:
        """Read a JSON object."""
        reply = self._get(path)
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()
        return found

    def send(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """Send a JSON object and give that of the answer."""
        url = f"{self.url}{path}"
        reply = httpx.request(method, url, json=body, headers=self.headers, timeout=30, trust_env=False)
        reply.raise_for_status()
        answer: dict[str, Any] = reply.json()
        return answer

    def has(self, path: str) -> bool:
        """Return whether something is there."""
        return self._get(path).is_success

    def redis_pid(self) -> int:
        """Find the embedded Valkey by its command line, which names our data directory or is our child."""
        engines = [p for p in self._everything() if "valkey" in command_line(p) or "redis-server" in command_line(p)]
        assert len(engines) == 1, [command_line(p) for p in self._everything()]
        return engines[0]

    def worker_pids(self) -> list[int]:
        """Find the API processes: children of the fork server, or of the supervisor in versions that have none."""
        mine = children(self.process.pid)
        fork_servers = [p for p in mine if "forkserver" in command_line(p)]
        forked = [p for server in fork_servers for p in children(server)]
        return forked or [p for p in mine if "spawn_main" in command_line(p)]

    def kill_everything(self) -> None:
        """End the supervisor, its workers and Redis at once, as a power cut would."""
        kill(self.process.pid, *self._everything())
        self.process.wait()

    def stop(self) -> None:
        """End it as an operator does; it must leave nothing behind."""
        self.process.stop()

    def _get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=self.headers, timeout=30, trust_env=False)

    def _everything(self) -> list[int]:
        return descendants(self.process.pid)
