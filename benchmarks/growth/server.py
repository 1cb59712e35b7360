"""A service of some version, its processes, and what they cost."""

import asyncio
import ctypes
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import redis

from benchmarks.load import HttpCaller, Reply, Request, RequestFailed
from benchmarks.results import Results, Table
from tests.e2e.service import Service

Call = Callable[[], Awaitable[object]]

MEMBERS_LIVE_S = "86400"  # the benchmark sends no heartbeats for idle members
_ENOUGH_S = 300.0
_SETTLED_S = 0.003  # after a reply, until the process has put its things away


@dataclass(frozen=True, slots=True)
class Tree:
    """A version of the service: a name for columns, and its checkout."""

    name: str
    path: Path

    def column(self, figure: str, trees: int) -> str:
        """Name a figure of this version among so many."""
        return figure if trees == 1 else f"{self.name}: {figure}"


@dataclass
class Cost:
    """What calls cost: CPU seconds of the API processes and of Valkey, and how long each call took, seconds."""

    api_s: float = 0.0
    store_s: float = 0.0
    walls_s: list[float] = field(default_factory=list)

    @property
    def columns(self) -> dict[str, float]:
        """Means per call of CPU time, and quantiles of wall time; milliseconds."""
        calls = len(self.walls_s)
        return {
            "A": self.api_s * 1000 / calls,
            "V": self.store_s * 1000 / calls,
            "p50": quantile(self.walls_s, 0.5) * 1000,
            "p99": quantile(self.walls_s, 0.99) * 1000,
        }


class Server:
    """One version of the service with an embedded Valkey, and a connection to each."""

    def __init__(
        self, tree: Tree, folder: Path, processes: int, trees: int, settings: Mapping[str, str], *, closed: bool = False
    ) -> None:
        self.tree = tree
        self.folder = folder
        self._trees = trees
        self._settings = {"LACHESIS_ENVIRONMENT_TTL_S": MEMBERS_LIVE_S, **settings}
        self.service = Service(folder, processes, settings=self._settings, tree=tree.path, closed=closed)
        self.find_processes()
        self.redis = redis.Redis(unix_socket_path=str(folder / "data" / "redis" / "redis.sock"))
        self._callers: list[HttpCaller] = []
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(timeout=_ENOUGH_S, trust_env=False, limits=limits)

    async def dial(self) -> HttpCaller:
        """Open a connection."""
        return await HttpCaller.dial(self.service.port)

    async def call(self, request: Request) -> Reply:
        """Send a prepared request over a connection that is kept; any answer but success is an error.

        Raises:
            RequestFailed: The reply was an error.
        """
        caller = self._callers.pop() if self._callers else await self.dial()
        reply = await caller.call(request)
        if reply.status >= 300:
            caller.close()
            raise RequestFailed(f"{reply.status}: {reply.body[:300]!r}")
        self._callers.append(caller)
        return reply

    def hang_up(self) -> None:
        """Close the connections that are kept; servers do so with idle ones."""
        while self._callers:
            self._callers.pop().close()

    def http(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Call it outside of what is measured."""
        given = {"headers": self.service.headers} | options
        return self._client.request(method, f"{self.service.url}{path}", **given)

    def made(self, method: str, path: str, **options: Any) -> Any:
        """Call it outside of what is measured, and return the JSON it answers with; None without a body."""
        reply = self.http(method, path, **options)
        if not reply.is_success:
            raise RequestFailed(f"{method} {path}: {reply.status_code}: {reply.text[:300]}")
        return reply.json() if reply.content else None

    def fresh(self, run: str, **settings: Any) -> None:
        """Delete a run if it is there, and make it again."""
        if self.http("GET", f"/v1/runs/{run}").is_success:
            self.made("DELETE", f"/v1/runs/{run}")
        self.made("POST", "/v1/runs", json={"name": run, **settings})

    def find_processes(self) -> None:
        """Note its processes: those that answer requests or supervise them, and Valkey. Call it after a start."""
        self.api_pids = [self.service.process.pid, *self.service.worker_pids()]
        self.store_pid = self.service.redis_pid()

    def cpu_s(self) -> tuple[float, float]:
        """CPU time so far, of the API processes and of Valkey, seconds."""
        return sum(map(cpu_time_s, self.api_pids)), cpu_time_s(self.store_pid)

    def column(self, figure: str) -> str:
        """Name the column of a figure of this version."""
        return self.tree.column(figure, self._trees)

    def note(self, results: Results, table: Table, case: str, columns: Mapping[str, float]) -> None:
        """Take down what one round gave."""
        for name, value in columns.items():
            results.add(table, case, self.column(name), value)

    async def settled(self) -> None:
        """Wait until Valkey has rewritten its append-only file, which takes CPU time of others."""
        while True:
            found = self.redis.info("persistence")
            if not found["aof_rewrite_in_progress"] and not found["aof_rewrite_scheduled"]:
                return
            await asyncio.sleep(0.2)

    async def rewritten(self) -> None:
        """Let Valkey rewrite its append-only file now, so that it does not do so soon by itself.

        While a child process writes the file, Valkey copies each page of memory that it changes.
        """
        await self.settled()
        self.redis.bgrewriteaof()
        await self.settled()

    def stop(self) -> None:
        """End its processes."""
        self.hang_up()
        self.redis.close()
        self.service.stop()


class Meter:
    """Adds up the cost of what happens inside of it."""

    def __init__(self, server: Server) -> None:
        self.cost = Cost()
        self._cpu_s = server.cpu_s

    async def measure(self, operation: Call) -> None:
        """Do one operation, and count it."""
        before = self._cpu_s()
        began = time.perf_counter()
        await operation()
        self.cost.walls_s.append(time.perf_counter() - began)
        await asyncio.sleep(_SETTLED_S)
        after = self._cpu_s()
        self.cost.api_s += after[0] - before[0]
        self.cost.store_s += after[1] - before[1]

    async def repeat(self, operation: Call, seconds: float, least: int) -> None:
        """Do one operation after the other for some time, at least so often, and count all of them."""
        before = self._cpu_s()
        began = last = time.perf_counter()
        while last - began < seconds or len(self.cost.walls_s) < least:
            await operation()
            self.cost.walls_s.append(time.perf_counter() - last)
            last = time.perf_counter()
        await asyncio.sleep(_SETTLED_S)
        after = self._cpu_s()
        self.cost.api_s += after[0] - before[0]
        self.cost.store_s += after[1] - before[1]


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions to compare, and how to start them."""

    trees: tuple[Tree, ...]

    @contextmanager
    def running(
        self, processes: int = 1, settings: Mapping[str, str] | None = None, *, closed: bool = False
    ) -> Iterator[list[Server]]:
        """Start all of them side by side, and end them afterwards. The ones not measured are idle.

        Args:
            processes: API processes of each.
            settings: Settings of each.
            closed: Whether they ask for tokens.
        """
        with ExitStack() as stack:
            servers = []
            for tree in self.trees:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lachesis-growth-")))
                server = Server(tree, folder, processes, len(self.trees), settings or {}, closed=closed)
                stack.callback(server.stop)
                servers.append(server)
            yield servers


def quantile(values: list[float], part: float) -> float:
    """Return the value below which this part of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if part != 0.5 else statistics.median(values)


_LIBC = ctypes.CDLL(None, use_errno=True)


def cpu_time_s(pid: int) -> float:
    """CPU time that a process has used so far in all of its threads, seconds, to the nanosecond.

    Raises:
        ProcessLookupError: There is no such process.
    """
    clock = ctypes.c_int()
    if error := _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise ProcessLookupError(error, f"there is no process {pid}")
    return time.clock_gettime(clock.value)
