"""Two API processes for state machines, which are synchronous."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import SecretStr
from redis.asyncio import Redis

from app.api.deps import Services
from app.main import build_services
from app.settings import ServiceSettings
from app.store.redis.client import RedisClient
from app.store.redis.keys import RUNS, SERVICE, RunKeys
from tests.acl_user import unrestricted_url

T = TypeVar("T")
A_YEAR_S = 366 * 24 * 3600.0


class Processes:
    """Two API processes over one Redis, called in turn on an event loop of their own."""

    def __init__(self, redis_url: str, other: type[RedisClient] = RedisClient) -> None:
        """Start both; the second one uses a connection of class ``other``."""
        self._loop = asyncio.new_event_loop()
        self.redis = Redis.from_url(unrestricted_url(redis_url))  # it may empty the server
        self._connections = [RedisClient(redis_url, 5.0), other(redis_url, 5.0)]
        given = ServiceSettings(redis_url=SecretStr(redis_url), environment_ttl_s=A_YEAR_S)
        self._wired = [build_services(given, connection, "tested") for connection in self._connections]
        for services in self._wired:  # machines compare each answer with what is stored now
            services.environments.demand.most_spent_s = math.inf

    def call(self, use: Callable[[Services], Awaitable[T]]) -> T:
        """Call a use case in the process whose turn it is."""
        self._wired.reverse()
        return self.wait(use(self._wired[0]))

    def tick(self, run: str) -> None:
        """Maintain a run in both processes."""
        for services in self._wired:
            self.wait(services.maintenance.maintain(run))

    def pass_time(self, run: str, ms: int) -> None:
        """Move the clock of a run on. If the run sleeps, its clock follows that of the service."""
        asleep = self.wait(self.redis.hexists(RunKeys(run).run, "asleep_ms"))  # type: ignore[arg-type]
        self.wait(self.redis.hincrby(SERVICE if asleep else RunKeys(run).run, "clock_ms", ms))  # type: ignore[arg-type]

    def maintain_if_due(self, run: str) -> int:
        """Maintain a run in one process until it sleeps, if it may; not at all if it sleeps and is not due.

        Returns:
            The number of passes.
        """
        due_ms = self.wait(self.redis.zscore(RUNS, run))
        service_ms = self.wait(self.redis.hget(SERVICE, "clock_ms"))  # type: ignore[arg-type]
        passes = 3 if due_ms is not None and due_ms <= int(service_ms or 0) else 0
        for _ in range(passes):
            self.wait(self._wired[0].maintenance.maintain(run))
        return passes

    def transact(self, whether: bool) -> None:
        """Write payloads in the transaction that indexes them, or reserve them before it."""
        for connection in self._connections:
            connection.transacts = whether

    def wait(self, answer: Awaitable[T]) -> T:
        """Run the event loop until the answer is there."""
        return self._loop.run_until_complete(asyncio.ensure_future(answer, loop=self._loop))

    def close(self) -> None:
        """Close all connections."""
        self.wait(self.redis.aclose())
        for connection in self._connections:
            self.wait(connection.aclose())
        self._loop.close()
