"""Round trips to Redis without redis-py's pipelines: the same bytes, and each reply to its own command."""

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import Connection as RedisConnection
from redis.exceptions import AuthenticationError, NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.store.redis.client import RedisClient
from app.store.redis.pipeline import Pipeline, packed, parse_error
from app.store.server.embedded import EmbeddedRedis
from app.store.server.engine import find_server
from lachesis.wire.errors import StoreUnavailable
from tests.acl_user import unrestricted_url
from tests.clock import LoopClock
from tests.waiting import wait_until

WORDS = st.one_of(st.text(max_size=9), st.binary(max_size=9), st.integers(-(2**63), 2**63))
LAST = st.one_of(
    WORDS, st.binary(min_size=8193, max_size=8300), st.binary(min_size=9000, max_size=9000).map(memoryview)
)


@pytest.fixture(scope="module")
def redis_url(redis_url: str) -> str:
    """Return the URL for a user who may do everything: these tests send commands that the service never sends."""
    return unrestricted_url(redis_url)


@given(st.lists(st.lists(WORDS | LAST, max_size=6), min_size=1, max_size=6))
def test_commands_are_packed_as_by_redis_py(arguments: list[list[Any]]) -> None:
    commands = [("SET", *given) for given in arguments]
    assert b"".join(packed(commands)) == b"".join(RedisConnection().pack_commands(commands))


async def test_of_no_commands_there_are_no_replies_to_wait_for(redis_url: str) -> None:
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 1, 5)
    async with asyncio.timeout(60):
        assert await pipeline.send([]) == []
    await pipeline.aclose()


async def test_after_an_error_the_next_replies_are_still_those_of_their_commands(redis_url: str) -> None:
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 1, 5)
    with pytest.raises(Exception, match="unknown command"):
        await pipeline.send([("ECHO", "a"), ("NOSUCHCOMMAND",), ("ECHO", "b")])
    assert await pipeline.send([("ECHO", "c"), ("ECHO", b"d" * 9000)]) == [b"c", b"d" * 9000]
    await pipeline.aclose()


async def test_replies_nobody_waited_for_are_not_taken_for_later_ones(redis_url: str, redis_client: Redis) -> None:
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 1, 5)
    given_up = asyncio.create_task(pipeline.send([("BLPOP", "nothing-ever-comes-here", "1"), ("ECHO", "late")]))

    async def redis_has_it() -> bool:
        return bool((await redis_client.info("clients"))["blocked_clients"] == 1)

    await wait_until(redis_has_it)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert await pipeline.send([("ECHO", "mine")]) == [b"mine"]
    await pipeline.aclose()


async def test_what_the_server_says_unasked_is_not_taken_for_a_reply(redis_url: str) -> None:
    pipeline = Pipeline(ConnectionPool.from_url(redis_url, protocol=3), 1, 5)
    tracked = [("CLIENT", "TRACKING", "ON"), ("GET", "a"), ("SET", "a", "changed"), ("ECHO", "b")]
    assert await pipeline.send(tracked) == [b"OK", None, b"OK", b"b"]
    assert await pipeline.send([("ECHO", "c")]) == [b"c"]
    await pipeline.aclose()


async def test_a_server_that_serves_nobody_now_counts_as_one_that_cannot_be_reached(redis_url: str) -> None:
    """Such as one that is loading its data, or wants a password; the connection is not used again."""
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 1, 5)
    (before,) = await pipeline.send([("CLIENT", "ID")])
    with pytest.raises(AuthenticationError):
        await pipeline.send([("AUTH", "nobody", "wrong"), ("ECHO", "a")])
    (after,) = await pipeline.send([("CLIENT", "ID")])
    assert after != before
    await pipeline.aclose()


async def test_a_connection_logs_in_and_chooses_its_database(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    await own_redis.acl_setuser("worker", reset=True, enabled=True, passwords=["+secret"], commands=["+@all"])
    path = own_server.url.removeprefix("unix://")
    async with asyncio.timeout(60), tcp_relay(path) as port:
        for address in (f"unix://worker:{{}}@{path}?db=3", f"redis://worker:{{}}@127.0.0.1:{port}/3"):
            pipeline = Pipeline(ConnectionPool.from_url(address.format("secret")), 1, 5)
            who, client = await pipeline.send([("ACL", "WHOAMI"), ("CLIENT", "INFO")])
            assert who == b"worker"
            assert b" db=3 " in client
            assert b" resp=3 " in client
            await pipeline.aclose()
            pipeline = Pipeline(ConnectionPool.from_url(address.format("wrong")), 1, 5)
            with pytest.raises(AuthenticationError):
                await pipeline.send([("ECHO", "a")])
            await pipeline.aclose()


@contextlib.asynccontextmanager
async def tcp_relay(path: str) -> AsyncIterator[int]:
    """A TCP port that leads to a unix socket."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def copied(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(4096):
                sink.write(data)
            sink.close()

        to_server, from_server = await asyncio.open_unix_connection(path)
        await asyncio.gather(copied(reader, from_server), copied(to_server, writer), return_exceptions=True)

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("reply", "expected", "said"),
    [
        ("OOM command not allowed", OutOfMemoryError, "command not allowed"),
        ("NOSCRIPT No matching script.", NoScriptError, "No matching script."),
        ("READONLY You can't write", ReadOnlyError, "You can't write"),
        ("LOADING Redis is loading", RedisConnectionError, "Redis is loading"),
        ("NOPERM no permission", ResponseError, "no permission"),
        ("ERR max number of clients reached", RedisConnectionError, "max number of clients reached"),
        ("CLUSTERDOWN The cluster is down", ResponseError, "CLUSTERDOWN The cluster is down"),
        ("NEW", ResponseError, "NEW"),
    ],
)
def test_an_error_of_the_server_has_the_class_that_says_whether_it_may_pass(
    reply: str, expected: type[Exception], said: str
) -> None:
    error = parse_error(reply)
    assert isinstance(error, expected)
    assert said in str(error)


async def test_large_replies_and_many_are_put_together(redis_url: str) -> None:
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 1, 5)
    value = bytes(range(256)) * 10_000
    assert await pipeline.send([("SET", "a", value), *[("ECHO", str(n)) for n in range(5000)], ("GET", "a")]) == [
        b"OK",
        *(b"%d" % n for n in range(5000)),
        value,
    ]
    await pipeline.aclose()


async def test_a_transaction_is_done_whole_and_its_replies_are_those_of_its_commands(redis_url: str) -> None:
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 1, 5)
    assert await pipeline.transact([("SET", "a", b"x" * 9000), ("STRLEN", "a"), ("GET", "nothing")]) == [
        b"OK",
        9000,
        None,
    ]
    with pytest.raises(Exception, match="unknown command"):
        await pipeline.transact([("SET", "a", "refused"), ("NOSUCHCOMMAND",)])
    assert await pipeline.send([("STRLEN", "a")]) == [9000], "refused with what was beside it"
    with pytest.raises(Exception, match="No matching script"):
        await pipeline.transact([("EVALSHA", "0" * 40, 0), ("GET", "a")])
    assert await pipeline.send([("ECHO", "next")]) == [b"next"]
    await pipeline.aclose()


async def test_connections_that_broke_while_they_were_idle_fail_once_between_them(
    redis_url: str, redis_client: Redis
) -> None:
    """As after a restart of the server: however many there are, the next repetition is on a new one."""
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 8, 5)
    await asyncio.gather(*(pipeline.send([("BLPOP", "nothing-ever-comes-here", "0.1")]) for _ in range(8)))
    await redis_client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises((RedisConnectionError, OSError)):
        await pipeline.send([("ECHO", "lost")])
    assert await pipeline.send([("ECHO", "again")]) == [b"again"]
    await pipeline.aclose()


async def test_who_waits_for_replies_learns_that_the_connection_is_lost(redis_url: str, redis_client: Redis) -> None:
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 1, 5)
    waiting = asyncio.create_task(pipeline.send([("ECHO", "first"), ("BLPOP", "nothing-ever-comes-here", "0")]))

    async def it_waits() -> bool:
        return bool((await redis_client.info("clients"))["blocked_clients"])

    await wait_until(it_waits, pause_s=0.01)
    await redis_client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(RedisConnectionError):
        await waiting
    await pipeline.aclose()


async def test_what_is_not_answered_in_time_is_given_up(redis_url: str) -> None:
    """This holds for calls at once and for calls one after the other. A later call is answered."""
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 8, 1.0)
    for _ in range(2):
        never = [pipeline.send([("BLPOP", "nothing-ever-comes-here", "0")]) for _ in range(3)]
        outcomes = await asyncio.gather(*never, pipeline.send([("ECHO", "a")]), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes[:3]] == [RedisTimeoutError] * 3
        assert outcomes[3] == [b"a"]
        assert await pipeline.send([("ECHO", "b")]) == [b"b"]
    await pipeline.aclose()


async def test_who_waits_for_others_gives_up_in_time(redis_url: str) -> None:
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 1, 1.5)
    first = asyncio.create_task(pipeline.send([("BLPOP", "nothing-ever-comes-here", "0")]))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await pipeline.send([("ECHO", "a")])
    with pytest.raises(RedisTimeoutError):
        await first
    assert await pipeline.send([("ECHO", "b")]) == [b"b"]
    await pipeline.aclose()


async def two_are_blocked(redis: Redis) -> bool:
    return bool((await redis.info("clients"))["blocked_clients"] == 2)


async def test_round_trips_that_wait_for_others_are_given_up_in_bounded_time(
    redis_url: str, redis_client: Redis, loop_clock: LoopClock
) -> None:
    """A look each 50 s finds what made no progress. What the server reads late counts as progress once."""
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 2, 250)
    at_once = asyncio.create_task(pipeline.send([("BLPOP", "nothing-ever-comes-here", "0")]))
    ahead = asyncio.create_task(pipeline.send([("BLPOP", "comes-in-time", "0")]))
    behind = asyncio.create_task(pipeline.send([("BLPOP", "nothing-ever-comes-here", "0")]))
    await wait_until(lambda: two_are_blocked(redis_client))
    await loop_clock.advance(150)  # of the 250 s that all three have
    await redis_client.rpush("comes-in-time", "a")
    await ahead
    await wait_until(lambda: two_are_blocked(redis_client))
    assert not behind.done()
    for _ in range(7):
        if not (at_once.done() and behind.done()):
            await loop_clock.advance(50)
    for late in (at_once, behind):
        with pytest.raises(RedisTimeoutError):
            await late
    await pipeline.aclose()


async def test_a_server_that_takes_connections_and_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = RedisClient(f"redis://127.0.0.1:{server.getsockname()[1]}", 0.1)
        with pytest.raises(StoreUnavailable, match="no connection in time"):
            await connection.check_ready()
        with pytest.raises(StoreUnavailable, match=r"within 0\.1 s: no connection in time"):
            await connection.call("GET", "a")
        await connection.aclose()


async def test_a_server_that_answers_with_an_error_is_not_ready(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    await own_redis.acl_setuser("worker", reset=True, enabled=True, passwords=["+secret"], commands=["+@all", "-info"])
    connection = RedisClient(own_server.url.replace("unix://", "unix://worker:secret@"), 5)
    with pytest.raises(StoreUnavailable, match=r"not ready: .*permission.*rights of this user"):
        await connection.check_ready()
    await connection.aclose()


async def test_a_server_that_refuses_the_service_is_not_said_to_be_silent(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    await own_redis.acl_setuser("worker", reset=True, enabled=True, passwords=["+other"], commands=["+@all"])
    connection = RedisClient(own_server.url.replace("unix://", "unix://worker:secret@"), 0.1)
    with pytest.raises(StoreUnavailable, match=r"refused this service for 0\.1 s: .*password.*its user and password"):
        await connection.call("PING")
    await connection.aclose()
    connection = RedisClient(own_server.url, 0.1)
    await own_redis.replicaof("127.0.0.1", "1")  # type: ignore[no-untyped-call]
    with pytest.raises(StoreUnavailable, match=r"refused this service .*read only.*names the primary"):
        await connection.call("SET", "a", "1")
    await connection.aclose()


@pytest.fixture
def loading_url(tmp_path: Path) -> Iterator[str]:
    """The URL of a server that loads its data for a minute, until a test sets its key-load-delay to 0."""
    folder, binary = tmp_path / "appendonlydir", find_server(None)[0]
    folder.mkdir()
    (folder / "appendonly.aof.1.incr.aof").write_bytes(b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n" * 300_000)
    (folder / "appendonly.aof.manifest").write_text("file appendonly.aof.1.incr.aof seq 1 type i\n")
    options = ["--port", "0", "--unixsocket", tmp_path / "s", "--dir", tmp_path, "--appendonly", "yes"]
    command = [binary, *options, "--key-load-delay", "200"]  # in microseconds
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        yield f"unix://{tmp_path / 's'}"
        server.kill()


@pytest.mark.slow
async def test_a_server_that_loads_its_data_is_not_ready(loading_url: str) -> None:
    connection = RedisClient(loading_url, 120)
    await connection.call("CONFIG", "GET", "port")  # it listens
    with pytest.raises(StoreUnavailable, match=r"not ready: .*loading"):
        await connection.check_ready()
    await connection.call("CONFIG", "SET", "key-load-delay", 0)
    assert await connection.call("GET", "n") == b"300000"
    await connection.check_ready()
    await connection.aclose()


async def test_a_server_that_cannot_write_to_its_disk_is_not_ready(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    obstacle = Path(own_server.url.removeprefix("unix://")).with_name("dump.rdb")
    obstacle.mkdir()

    async def has_saved() -> bool:
        return not (await own_redis.info("persistence"))["rdb_bgsave_in_progress"]

    connection = RedisClient(own_server.url, 5)
    await own_redis.config_set("save", "3600 1")
    await connection.check_ready()
    await own_redis.bgsave()
    await wait_until(has_saved)
    with pytest.raises(StoreUnavailable, match="not ready: MISCONF"):
        await connection.check_ready()
    obstacle.rmdir()
    await own_redis.bgsave()
    await wait_until(has_saved)
    await connection.check_ready()
    await connection.aclose()


async def test_a_server_that_lacks_its_replicas_is_not_ready(own_server: EmbeddedRedis, own_redis: Redis) -> None:
    connection = RedisClient(own_server.url, 5)
    await own_redis.config_set("min-replicas-to-write", "1")
    with pytest.raises(StoreUnavailable, match="not ready: NOREPLICAS"):
        await connection.check_ready()
    await own_redis.config_set("min-replicas-to-write", "0")
    await connection.check_ready()
    await connection.aclose()


async def test_a_server_that_lets_the_service_only_read_is_not_ready(
    own_server: EmbeddedRedis, own_redis: Redis
) -> None:
    user = {"enabled": True, "passwords": ["+secret"], "categories": ["+@all", "-@write"], "keys": ["*"]}
    await own_redis.acl_setuser("worker", reset=True, **user)
    connection = RedisClient(own_server.url.replace("unix://", "unix://worker:secret@"), 5)
    with pytest.raises(StoreUnavailable, match=r"not ready: .*permission.*rights of this user"):
        await connection.check_ready()
    await connection.aclose()


async def test_a_connection_that_is_busy_at_the_end_is_closed_when_it_is_idle(
    redis_url: str, redis_client: Redis
) -> None:
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 2, 30)
    before = len(await redis_client.client_list())
    popping = asyncio.create_task(pipeline.send([("BLPOP", "later", "0")]))
    await wait_until(lambda: _clients_are(redis_client, before + 1))
    await pipeline.aclose()
    await redis_client.rpush("later", "now")  # type: ignore[misc]
    assert await popping == [[b"later", b"now"]]
    await wait_until(lambda: _clients_are(redis_client, before))


async def _clients_are(redis: Redis, number: int) -> bool:
    return len(await redis.client_list()) == number


async def test_no_more_round_trips_are_made_at_a_time_than_it_may(redis_url: str, redis_client: Redis) -> None:
    pipeline = Pipeline(ConnectionPool.from_url(redis_url), 2, 5)
    before = len(await redis_client.client_list())
    assert await asyncio.gather(*(pipeline.send([("ECHO", str(n))]) for n in range(9))) == [
        [b"%d" % n] for n in range(9)
    ]
    assert len(await redis_client.client_list()) <= before + 2
    await pipeline.aclose()
