"""Ask a Redis at start what it is and how durable it is."""

import asyncio
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.store.redis.keys import FORMER_RUNS, SERVICE
from app.store.redis.requirements import refuse_unusable
from app.store.server.engine import Engine
from lachesis.wire.errors import StoreMisconfigured, StoreUnavailable
from lachesis.wire.states import EVERY_WRITE


class Durability(StrEnum):
    """What an acknowledged write survives; `docs/operate/index.md` has the same rungs for people."""

    FSYNC = "fsync"
    EVERYSEC = "everysec"
    MEMORY = "memory"


_PROMISES = {
    Durability.FSYNC: EVERY_WRITE,
    Durability.EVERYSEC: "written to disk once a second: a crash can lose 2 s of acknowledged writes",
    Durability.MEMORY: "NOT durable: when Redis ends, what it held is lost",
}


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What the service needs to know, and say, about its Redis.

    Attributes:
        engine: ``Redis`` or ``Valkey``.
        version: Its version, as ``9.1.2``.
        durability: What an acknowledged write survives.
        promise: ``durability`` in words.
        maxmemory_bytes: Its memory limit; 0 means none.
        config_is_readable: Whether the service may read the configuration (CONFIG GET).
        torn_multi_bug: Whether a torn append-only file can swallow later writes (`Engine.torn_multi_bug`).
        clock_ms: The service clock, which never goes back; 0 where no service has run.
        warnings: What an operator should change, one sentence each.
    """

    engine: str
    version: str
    durability: Durability
    promise: str
    maxmemory_bytes: int
    config_is_readable: bool
    torn_multi_bug: bool
    clock_ms: int
    warnings: tuple[str, ...]

    @property
    def summary(self) -> str:
        """One sentence, such as ``Valkey 9.1.2, every acknowledged write is fsynced``."""
        return f"{self.engine} {self.version}, {self.promise}"


async def probe(client: Redis, *, asks_config: bool = True) -> StoreFacts:
    """Ask a Redis what it is, and refuse one that cannot keep our promises.

    This only reads. Where CONFIG is forbidden, as on managed servers, INFO says most of it. For the rest, the weaker
    case is assumed.

    Args:
        client: A connection to it.
        asks_config: Whether to read CONFIG. Each forbidden attempt is an entry in the ACL LOG of Redis.

    Raises:
        StoreMisconfigured: It is too old, is a replica, evicts keys, or holds data of an older version of this service.
            The message says what to do.
        redis.exceptions.RedisError: It cannot be asked (down, loading, wrong password).
    """
    info: dict[str, Any] = await client.info()
    config = await _config(client) if asks_config else None
    engine = Engine.reported(info)
    _refuse_unsupported(engine, info, config)
    await _refuse_older_data(client)
    durability, remarks = _durability(info, config)
    warnings = list(remarks)
    if engine.torn_multi_bug and durability is not Durability.MEMORY:
        warnings.append(
            f"{engine} can lose writes made after a restart that followed a crash (a torn script in its append-only "
            "file). Run redis-check-aof --fix before each start, or use Valkey >= 9.1.2 or 8.1.10"
        )
    return StoreFacts(
        engine=engine.name,
        version=".".join(map(str, engine.version)),
        durability=durability,
        promise=_PROMISES[durability],
        maxmemory_bytes=int(info.get("maxmemory", 0)),
        config_is_readable=config is not None,
        torn_multi_bug=engine.torn_multi_bug,
        clock_ms=int(await client.hget(SERVICE, "clock_ms") or 0),
        warnings=tuple(warnings),
    )


async def _refuse_older_data(client: Redis) -> None:
    found = [key for key in FORMER_RUNS if await client.exists(key)]
    if found:
        raise StoreMisconfigured(
            f"this Redis holds data of an older Lachesis (key {found[0]}), which this version cannot read",
            remedy="Start with an empty LACHESIS_DATA_DIR or another Redis, or go back to the older version. "
            f"If the old data is not needed, delete its keys ({found[0].removesuffix('runs')}*).",
        )


async def probe_patiently(url: str, patience_s: float, *, asks_config: bool = True) -> StoreFacts:
    """Probe the Redis at ``url``, which may just be starting.

    Raises:
        StoreMisconfigured: It cannot keep our promises, or the user or password is wrong.
        StoreUnavailable: It did not answer within ``patience_s`` seconds.
    """
    deadline = time.monotonic() + patience_s
    async with Redis.from_url(url, socket_connect_timeout=5.0, socket_timeout=5.0) as client:
        while True:
            try:
                return await probe(client, asks_config=asks_config)
            except (RedisConnectionError, RedisTimeoutError) as error:
                if isinstance(error.__cause__ or error, AuthenticationError):
                    raise StoreMisconfigured(
                        f"Redis at {place_of(url)} refuses the user or password: {error}",
                        remedy="Correct them in LACHESIS_REDIS_URL.",
                    ) from error
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise StoreMisconfigured(
                        f"the certificate of Redis at {place_of(url)} is not to be trusted: {error}",
                        remedy="Name the file of its CA in LACHESIS_REDIS_CA.",
                    ) from error
                if isinstance(error.__cause__, ResponseError):
                    raise _refused(url, error) from error
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"Redis at {place_of(url)} does not answer: {error}",
                        remedy="Start it. Check the address and the password, if LACHESIS_REDIS_URL names it.",
                    ) from error
            except RedisError as error:
                raise _refused(url, error) from error
            await asyncio.sleep(0.1)


def _refused(url: str, error: RedisError) -> StoreMisconfigured:
    return StoreMisconfigured(
        f"Redis at {place_of(url)}: {error}",
        remedy="Check its address and database, and the rights of its user (docs/security.md).",
    )


def place_of(url: str) -> str:
    """Say where the Redis at ``url`` is, without its user and password."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path


async def _config(client: Redis) -> dict[str, str] | None:
    try:
        answer: dict[Any, Any] = await client.config_get("appendfsync", "maxmemory-policy", "save")
    except ResponseError:  # forbidden by ACL, or renamed away
        return None
    return {_text(name): _text(value) for name, value in answer.items()}


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _refuse_unsupported(engine: Engine, info: dict[str, Any], config: dict[str, str] | None) -> None:
    if not engine.supported:
        raise StoreMisconfigured(f"this is {engine}, which is too old", remedy="Use Redis >= 7.0 or Valkey.")
    if info.get("redis_mode", info.get("server_mode")) == "cluster":
        raise StoreMisconfigured(
            "this Redis runs in cluster mode, which Lachesis does not support",
            remedy="Name a single server in LACHESIS_REDIS_URL.",
        )
    policy = info.get("maxmemory_policy") or (config or {}).get("maxmemory-policy")
    refuse_unusable(info.get("role"), policy)


def _durability(info: dict[str, Any], config: dict[str, str] | None) -> tuple[Durability, list[str]]:
    if not int(info.get("aof_enabled", 0)):
        snapshots = " (snapshots only)" if (config or {}).get("save") else ""
        return Durability.MEMORY, [
            f"Redis keeps no append-only file{snapshots}: set appendonly yes, appendfsync always"
        ]
    if config is None:
        return Durability.EVERYSEC, ["appendfsync cannot be read (CONFIG is forbidden); taken to be everysec"]
    fsync = config.get("appendfsync")
    if fsync == "always":
        return Durability.FSYNC, []
    if fsync == "everysec":
        return Durability.EVERYSEC, [
            "to lose nothing in a crash set appendfsync always (LACHESIS_FSYNC=always for the embedded Valkey)"
        ]
    return Durability.MEMORY, [f"appendfsync {fsync} leaves writing to the kernel: set appendfsync always"]
