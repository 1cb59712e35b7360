"""Who is compared, each as real processes on this machine, with the same few verbs.

Atropos's server runs as its own command runs it. Redis is of the same kind everywhere: our embedded one. It fsyncs
every write before it answers, except where a contestant's name says ``everysec``.
"""

import itertools
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import redis

from app.main import build_services
from app.settings import Fsync, ServiceSettings
from app.store.groups.encoded_group import EncodedGroup
from app.store.redis.client import RedisClient
from app.store.server.embedded import EmbeddedRedis
from benchmarks.bodies import http_post, redis_set
from benchmarks.load import Caller, HttpCaller, RedisCaller
from benchmarks.results import US
from tests.e2e.processes import Process, descendants
from tests.e2e.service import Service
from tests.e2e.venv import REPOSITORY, atropos_python
from tests.ports import free_port

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
START_WITHIN_S = 60.0
PUT_AT_ONCE = 1000


class Contestant(ABC):
    """A server that groups can be sent to."""

    name: str
    keyed = False  # whether each submission differs from the others

    @abstractmethod
    def fresh(self, batch_size: int, stored_bytes: int) -> None:
        """Forget everything and await groups of which this service would store ``stored_bytes`` each."""

    @abstractmethod
    async def dial(self) -> Caller:
        """Open a connection."""

    @abstractmethod
    def submission(self, n: int, body: bytes, *, gzipped: bool, close: bool) -> bytes:
        """Prepare the n-th submission."""

    @abstractmethod
    def held(self) -> int:
        """Count the groups it has, by its own books."""

    @abstractmethod
    def pids(self) -> list[int]:
        """Name all its processes, its Redis among them."""

    @abstractmethod
    def stop(self) -> None:
        """End its processes."""

    def cpu_s(self) -> float:
        """Processor time that its processes have used so far, seconds."""
        used_s = 0.0
        for pid in self.pids():
            with suppress(FileNotFoundError, ProcessLookupError):  # a child of Redis that has rewritten its file by now
                used_s += process_cpu_s(pid)
        return used_s


def process_cpu_s(pid: int) -> float:
    """Processor time that a process has used so far, user and system, seconds."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS_PER_S


class AtroposSpeaker(Contestant):
    """A server of the Atropos contract."""

    port: int

    def fresh(self, batch_size: int, stored_bytes: int) -> None:  # noqa: ARG002 - what it stores is its own affair
        self.get("/reset_data")
        registration = {
            "wandb_group": "g", "wandb_project": "p", "batch_size": batch_size, "max_token_len": 32768,
            "checkpoint_dir": "c", "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 1000000,
        }  # fmt: skip
        self.post("/register", json=registration)

    async def dial(self) -> Caller:
        return await HttpCaller.dial(self.port)

    def submission(self, n: int, body: bytes, *, gzipped: bool, close: bool) -> bytes:  # noqa: ARG002
        return http_post("/scored_data", body, gzipped=gzipped, close=close)

    def held(self) -> int:
        return int(self.get("/status").json()["queue_size"])

    def get(self, path: str) -> httpx.Response:
        """Call it outside of what is measured."""
        return self.call("GET", path).raise_for_status()

    def post(self, path: str, **body: Any) -> httpx.Response:
        """Call it outside of what is measured."""
        return self.call("POST", path, **body).raise_for_status()

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Call it outside of what is measured, whatever the answer."""
        return httpx.request(method, f"http://127.0.0.1:{self.port}{path}", timeout=600, trust_env=False, **options)


class Lachesis(AtroposSpeaker):
    """This service: one API process and its Redis."""

    def __init__(self, folder: Path, fsync: Fsync = "always") -> None:
        self.name = US if fsync == "always" else f"{US}, {fsync}"
        self._socket = folder / "data" / "redis" / "redis.sock"
        self._service = Service(folder, settings={"LACHESIS_FSYNC": fsync})
        self.port = self._service.port

    def pids(self) -> list[int]:
        return [self._service.process.pid, *descendants(self._service.process.pid)]

    def redis_pid(self) -> int:
        """Its Redis."""
        return self._service.redis_pid()

    @property
    def redis_url(self) -> str:
        """Where its Redis is."""
        return f"unix://{self._socket}"

    def stored_bytes(self) -> int:
        """Payload bytes in its queue."""
        return int(self.get("/status").json()["bytes"]["queued"])

    async def put(self, groups: Sequence[EncodedGroup], count: int) -> None:
        """Queue groups through the service's own layers but HTTP: for depths that would take too long otherwise."""
        connection = RedisClient(self.redis_url, 60.0)
        intake = build_services(ServiceSettings(), connection, "").groups.atropos
        endless = itertools.cycle(groups)
        for start in range(0, count, PUT_AT_ONCE):
            await intake.submit("default", list(itertools.islice(endless, min(PUT_AT_ONCE, count - start))))
        await connection.aclose()

    def redis(self) -> redis.Redis:
        """Connect to its Redis, to ask for figures."""
        return redis.Redis(unix_socket_path=str(self._socket))

    def stop(self) -> None:
        self._service.stop()


class Atropos(AtroposSpeaker):
    """``python -m atroposlib.cli.run_api``, as its users start it."""

    name = "atropos"

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [str(atropos_python()), "-m", "atroposlib.cli.run_api", "--host", "127.0.0.1", "--port"]
        self._process = Process(self.name, [*command, str(self.port)], folder / "atropos.log", {})
        self._process.wait_until(
            "Atropos listens", lambda: "running on" in self._process.log.read_text(), START_WITHIN_S
        )

    def pids(self) -> list[int]:
        return [self._process.pid]

    def resident_bytes(self) -> int:
        """Memory that it occupies."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        self._process.stop()


class PlainRedis(Contestant):
    """Redis alone, written to directly: as many bytes as this service stores."""

    name = "redis alone"
    keyed = True

    def __init__(self, folder: Path) -> None:
        self._server = EmbeddedRedis.start(folder)
        self.url = self._server.url
        self.client = redis.Redis.from_url(self.url)
        self._socket = self.client.connection_pool.connection_kwargs["path"]
        self._value = b""

    def fresh(self, batch_size: int, stored_bytes: int) -> None:  # noqa: ARG002
        self.client.flushall()
        self._value = os.urandom(stored_bytes)

    async def dial(self) -> Caller:
        return await RedisCaller.dial(self._socket)

    def submission(self, n: int, body: bytes, *, gzipped: bool, close: bool) -> bytes:  # noqa: ARG002
        return redis_set(b"%d" % n, self._value)

    def held(self) -> int:
        return int(self.client.dbsize())

    def pids(self) -> list[int]:
        return [self._server.pid]

    def stop(self) -> None:
        self.client.close()
        self._server.stop()


class BareEndpoint(Contestant):
    """A bare ASGI endpoint that stores every body as it came, or as many bytes as this service would."""

    def __init__(self, name: str, folder: Path, redis_alone: PlainRedis, as_sent: bool) -> None:
        self.name = name
        self.port = free_port()
        self._redis = redis_alone
        self._as_sent = as_sent
        self._path = ""
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "benchmarks.limit_app:app",
            "--loop",
            "uvloop",
            "--http",
            "httptools",
        ]
        options = ["--no-access-log", "--lifespan", "off", "--port", str(self.port)]
        env = {"LIMIT_REDIS_URL": redis_alone.url}
        self._process = Process(name, [*command, *options], folder / f"{name}.log", env, REPOSITORY)
        self._process.wait_until(
            f"{name} listens", lambda: "running on" in self._process.log.read_text(), START_WITHIN_S
        )

    def fresh(self, batch_size: int, stored_bytes: int) -> None:
        self._redis.fresh(batch_size, stored_bytes)
        self._path = "/as-sent" if self._as_sent else f"/as-stored/{stored_bytes}"

    async def dial(self) -> Caller:
        return await HttpCaller.dial(self.port)

    def submission(self, n: int, body: bytes, *, gzipped: bool, close: bool) -> bytes:  # noqa: ARG002
        return http_post(self._path, body, gzipped=gzipped, close=close)

    def held(self) -> int:
        return self._redis.held()

    def pids(self) -> list[int]:
        return [self._process.pid, *self._redis.pids()]

    def stop(self) -> None:
        self._process.stop()
