"""Connect to Redis. Operations wait while the server restarts or stalls, and then fail with a clear error."""

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis.asyncio as redis
from redis.exceptions import (
    AuthenticationError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.store.redis import scripts
from app.store.redis.pipeline import Argument, Command, Pipeline
from app.store.redis.requirements import refuse_unusable
from app.store.redis.server_time import parse_time_us
from lachesis.wire.errors import StoreFull, StoreRefused, StoreUnavailable

_LONGEST_PAUSE_S = 0.25
# Errors that may pass. The error of a command in a script comes after other words.
_PASSING = re.compile(r"\b(?:BUSY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|CLUSTERDOWN|TRYAGAIN)\b")
_REFUSALS = (AuthenticationError, ReadOnlyError)  # these pass after a change of password or primary
# TimeoutError is an OSError. A reply that is not one of Redis is of another server at its address.
_NO_ANSWER = (NoScriptError, RedisConnectionError, RedisTimeoutError, InvalidResponse, OSError)
_INFO_FIELD = re.compile(r"^(\w+):([^\r\n]*)", re.MULTILINE)
_MAX_CONNECTIONS = 64
_MAX_LISTENERS = 2**31  # one for each run with waiting requests; by default, redis-py opens at most 100
_NEVER_WRITTEN = "lachesis:never-written"  # a key
_IF_REFUSED = (
    "Check LACHESIS_REDIS_URL: its user and password, the rights of this user (docs/security.md), and that it names "
    "the primary."
)


class RedisClient:
    """A pool of connections whose operations wait for Redis instead of failing.

    Everything sent through it is repeated after a lost connection. So every command and script here must be safe to run
    twice: ids are chosen by the caller, and scripts recognise what was done already. The first attempt may even reach
    Redis after later commands of others, so scripts compare what they replace or remove with what the caller read. A
    script that only counts may count twice, if its header says so.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        patience_s: How long one operation is repeated. An attempt that makes progress is not cancelled.
        timeout_s: How long an attempt may make no progress.

    Attributes:
        url: Where Redis is, with user and password.
        transacts: Whether large values may be written in transactions. False if the server loses writes after a crash
            tears a transaction (`Engine.torn_multi_bug`): a crash tears large ones far more often than small ones.
    """

    def __init__(self, url: str, patience_s: float, timeout_s: float = 5.0) -> None:
        self.url = url
        self._patience_s = patience_s
        self._jitter = random.Random()
        self.transacts = True
        factory = redis.ConnectionPool.from_url(url)  # makes connections; the pipeline keeps them
        self._pipeline = Pipeline(factory, _MAX_CONNECTIONS, min(timeout_s, patience_s))
        # A listener keeps its connection, so it must not take one from the pool of commands.
        self.listeners: redis.Redis = redis.Redis.from_url(url, max_connections=_MAX_LISTENERS)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pipeline.aclose()
        await self.listeners.aclose()

    async def check_ready(self) -> None:
        """Ask Redis once whether it can be used.

        Raises:
            StoreUnavailable: It did not answer, it loads its data, or it takes no writes of this user. It takes none
                without its disk or its replicas.
            StoreMisconfigured: It is a replica, or evicts keys.
        """
        try:
            (text,) = await self._pipeline.send([("INFO", "replication", "memory")])
            info = dict(_INFO_FIELD.findall(text.decode()))
            refuse_unusable(info.get("role"), info.get("maxmemory_policy"))
            # INFO is answered in every state. A write is not, and this one changes nothing.
            await self._pipeline.send([("UNLINK", _NEVER_WRITTEN)])
        except (RedisError, OSError) as error:
            refused = isinstance(error, AuthenticationError | NoPermissionError)
            raise StoreUnavailable(
                f"Redis is not ready: {_said(error)}", remedy=_IF_REFUSED if refused else None
            ) from error

    async def _patiently(self, attempt: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """Run ``attempt`` until Redis answers it.

        Raises:
            StoreUnavailable: No answer within the patience; whether the change was made is unknown. Or Redis refused
                the password, or writes, for so long.
            StoreFull: Redis is out of memory; the change was not made.
            StoreRefused: Redis rejected it: a key has another type, or the command is forbidden.
        """
        deadline = time.monotonic() + self._patience_s
        pause = 0.01
        forgotten = False
        while True:
            try:
                if forgotten:
                    await self._load_scripts()
                return await attempt()
            except (ResponseError, *_NO_ANSWER) as error:
                lasting = _lasting(error)
                if lasting is not None:
                    raise lasting from error
                if time.monotonic() + pause >= deadline:
                    raise _given_up(error, self._patience_s) from error
                forgotten = isinstance(error, NoScriptError)
            await asyncio.sleep(pause * self._jitter.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _load_scripts(self) -> None:
        await self._pipeline.send([("SCRIPT", "LOAD", script.source) for script in scripts.all_scripts()])

    async def call(self, command: str, *arguments: Argument) -> Any:
        """Send one command."""
        (reply,) = await self.pipeline([(command, *arguments)])
        return reply

    async def time_us(self) -> int:
        """Return the time of Redis, microseconds since 1970."""
        return parse_time_us(await self.call("TIME"))

    async def scan(self, key: str, cursor: int, about: int) -> tuple[int, dict[bytes, bytes]]:
        """Read about ``about`` fields of a hash. The first and the last cursor are 0."""
        following, found = await self.call("HSCAN", key, cursor, "COUNT", about)
        return int(following), dict(zip(found[::2], found[1::2], strict=True))

    async def run(self, command: Command) -> Any:
        """Run one command, such as that of a script."""
        (reply,) = await self.pipeline([command])
        return reply

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip, or nothing without commands.

        Returns:
            One reply per command, as it came in RESP3.
        """
        return await self._patiently(lambda: self._pipeline.send(commands))

    async def transact(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands as one transaction; returns one reply per command, as it came."""
        return await self._patiently(lambda: self._pipeline.transact(commands))


def _lasting(error: Exception) -> StoreFull | StoreRefused | None:
    """Return the error of a command that would fail again. None means that the cause may pass."""
    if isinstance(error, _REFUSALS + _NO_ANSWER):
        return None
    # Inside a script redis-py does not recognise these by class.
    if isinstance(error, OutOfMemoryError) or "OOM" in str(error):
        return StoreFull(f"Redis is out of memory: {error}")
    if _PASSING.search(str(error)):
        return None
    return StoreRefused(f"Redis refused a command: {error}")


def _given_up(error: Exception, patience_s: float) -> StoreUnavailable:
    """Return the error of a command that failed for so long."""
    if isinstance(error, _REFUSALS):
        return StoreUnavailable(f"Redis refused this service for {patience_s:g} s: {error}", remedy=_IF_REFUSED)
    if isinstance(error, _NO_ANSWER):
        return StoreUnavailable(f"Redis did not answer within {patience_s:g} s: {_said(error)}")
    return StoreUnavailable(f"Redis was not ready within {patience_s:g} s: {error}")


def _said(error: Exception) -> str:
    return str(error) or "no connection in time"  # which asyncio's TimeoutError does not say
