"""What a Redis is asked at start, and which one is refused."""

import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from app.store.server.embedded import EmbeddedRedis
from app.store.server.engine import Engine, find_server
from app.store.server.probe import Durability, probe, probe_patiently
from lachesis.wire.errors import StoreMisconfigured
from lachesis.wire.states import EVERY_WRITE
from tests.ports import free_port
from tests.waiting import wait_until

FSYNCED = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "maxmemory": str(1 << 30)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A server of its own: these tests change its configuration."""
    with EmbeddedRedis.start(tmp_path_factory.mktemp("probed")) as started:
        yield started


@pytest.fixture
async def client(server: EmbeddedRedis) -> AsyncIterator[Redis]:
    async with Redis.from_url(server.url) as connected:
        await connected.replicaof("NO", "ONE")
        for name, value in FSYNCED.items():
            await connected.config_set(name, value)
        yield connected


async def user_without(client: Redis, server: EmbeddedRedis, forbidden: str) -> Redis:
    """A client whose user may do everything but ``forbidden``, as on managed servers."""
    await client.acl_setuser(
        "limited", reset=True, enabled=True, passwords=["+secret"], keys="*", commands=["+@all", f"-{forbidden}"]
    )
    return Redis.from_url(server.url, username="limited", password="secret")


async def test_the_embedded_server_is_as_durable_as_it_gets(client: Redis, server: EmbeddedRedis) -> None:
    facts = await probe(client)
    assert facts.durability is Durability.FSYNC
    assert facts.summary == f"{server.engine}, every acknowledged write is fsynced"
    assert facts.maxmemory_bytes == 1 << 30
    assert facts.warnings == ()
    assert not facts.torn_multi_bug


@pytest.mark.parametrize(
    ("config", "durability", "warning"),
    [
        ({"appendfsync": "everysec"}, Durability.EVERYSEC, "appendfsync always"),
        ({"appendfsync": "no"}, Durability.MEMORY, "appendfsync always"),
        ({"appendonly": "no"}, Durability.MEMORY, "appendonly yes"),
    ],
)
async def test_less_durable_servers_are_used_but_said_to_be(
    client: Redis, config: dict[str, str], durability: Durability, warning: str
) -> None:
    for name, value in config.items():
        await client.config_set(name, value)
    facts = await probe(client)
    assert facts.durability is durability
    assert warning in facts.warnings[0]
    assert EVERY_WRITE not in facts.summary


async def test_a_server_that_drops_data_when_full_is_refused(client: Redis) -> None:
    await client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreMisconfigured, match="maxmemory-policy allkeys-lru") as refused:
        await probe(client)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("user", ["", "nobody:wrong@", ":wrong@"])
async def test_a_server_that_refuses_the_password_is_not_waited_for(
    client: Redis, server: EmbeddedRedis, user: str
) -> None:
    await client.config_set("requirepass", "secret")
    try:
        with pytest.raises(StoreMisconfigured, match="refuses the user or password"):
            await probe_patiently(server.url.replace("unix://", f"unix://{user}"), 0.0)
    finally:
        await client.config_set("requirepass", "")


async def test_a_replica_is_refused(client: Redis) -> None:
    await client.replicaof("127.0.0.1", "1")
    with pytest.raises(StoreMisconfigured, match=r"takes no writes\. Name its primary"):
        await probe(client)


async def test_where_config_is_forbidden_the_weaker_case_is_assumed_and_said(
    client: Redis, server: EmbeddedRedis
) -> None:
    async with await user_without(client, server, "config") as limited:
        facts = await probe(limited)
        assert facts.durability is Durability.EVERYSEC
        assert "CONFIG is forbidden" in facts.warnings[0]
        await client.config_set("appendonly", "no")
        assert (await probe(limited)).durability is Durability.MEMORY
        await client.config_set("maxmemory-policy", "volatile-ttl")
        with pytest.raises(StoreMisconfigured, match="volatile-ttl"):
            await probe(limited)


async def test_where_info_is_forbidden_too_it_says_so_and_where_the_rights_are(
    client: Redis, server: EmbeddedRedis
) -> None:
    async with await user_without(client, server, "info"):
        with pytest.raises(StoreMisconfigured, match=r"'info'.* rights of its user \(docs/security\.md\)"):
            await probe_patiently(server.url.replace("unix://", "unix://limited:secret@"), 0.0)


async def test_a_database_that_is_not_there_is_named(server: EmbeddedRedis) -> None:
    with pytest.raises(StoreMisconfigured, match=r"DB index is out of range\. Check its address and database"):
        await probe_patiently(f"{server.url}?db=99", 0.0)


@pytest.mark.parametrize(
    ("name", "version", "supported"),
    [("Redis", "6.2.14", False), ("Redis", "7.0.0", True), ("Redis", "8.2.3", True), ("Valkey", "7.2.5", True)],
)
def test_which_engines_are_new_enough(name: str, version: str, supported: bool) -> None:
    assert Engine.parse(name, version).supported is supported


@pytest.fixture
def cluster_socket(tmp_path: Path) -> Iterator[Path]:
    """The socket of a server in cluster mode."""
    binary, _ = find_server(None)
    options = ["--port", "0", "--unixsocket", str(tmp_path / "s"), "--dir", str(tmp_path), "--cluster-enabled", "yes"]
    with subprocess.Popen([binary, *options, "--cluster-port", str(free_port())], stdout=subprocess.DEVNULL) as server:
        yield tmp_path / "s"
        server.kill()


async def test_a_server_in_cluster_mode_is_refused(cluster_socket: Path) -> None:
    """Better at start than by a MOVED at the first request."""
    async with Redis(unix_socket_path=str(cluster_socket)) as client:

        async def answers() -> bool:
            with contextlib.suppress(RedisConnectionError):
                return bool(await client.ping())
            return False

        await wait_until(answers)
        with pytest.raises(StoreMisconfigured, match="cluster mode"):
            await probe(client)


async def test_data_of_an_older_version_is_refused_with_what_to_do(client: Redis) -> None:
    await client.sadd("lachesis:1:runs", "math")  # type: ignore[misc]
    try:
        with pytest.raises(StoreMisconfigured, match=r"older Lachesis .* empty LACHESIS_DATA_DIR or another Redis"):
            await probe(client)
    finally:
        await client.delete("lachesis:1:runs")
    assert (await probe(client)).durability is Durability.FSYNC
