"""Redis over TLS, and the service as the ACL user of docs/security.md."""

import asyncio
import os
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pydantic import SecretStr
from redis import Redis
from redis.exceptions import NoPermissionError

from app.settings import ServiceSettings
from app.store.redis.address import store_url
from app.store.redis.client import RedisClient
from app.store.server.embedded import EmbeddedRedis
from app.store.server.probe import probe_patiently
from lachesis.wire.errors import StoreMisconfigured
from tests.acl_user import documented_rules, restricted_url
from tests.authority import Authority
from tests.lossy_line import LossyLine

ROOT = Path(__file__).parents[3]
STORE = ROOT / "app" / "store"
COMMAND = re.compile(r"(?<!\*)\(\"([A-Z]{3,})\"[,)]")  # the first word of a command


def test_the_user_may_do_all_that_scripts_do_and_nothing_dangerous(own_server: EmbeddedRedis) -> None:
    rules = documented_rules()
    allowed = {rule[1:] for rule in rules if rule.startswith("+")}
    used = {command.lower() for file in STORE.rglob("*.py") for command in COMMAND.findall(file.read_text())}
    # another database; its subcommand is allowed; an argument; an error
    used -= {"select", "script", "limit", "noreplicas"}
    for file in (STORE / "lua").rglob("*.lua"):
        used |= {name.lower() for name in re.findall(r"call\(\s*['\"]([A-Za-z]+)['\"]", file.read_text())}
    used -= {"xinfo"}  # its subcommand is allowed
    assert used <= allowed
    with Redis.from_url(restricted_url(own_server.url)) as user:
        user.set("lachesis:x", 1)
        for refused in ("GET other", "FLUSHALL", "CONFIG GET *", "KEYS *", "SHUTDOWN", "FUNCTION LIST", "ACL LIST"):
            with pytest.raises(NoPermissionError):
                user.execute_command(*refused.split())


@pytest.mark.long
@pytest.mark.at_length
def test_one_scenario_of_each_noun_passes_as_the_user() -> None:
    scenarios = ("replay", "curriculum", "ranks", "deleting", "crash_and_rewind", "long_poll")
    tests = [f"tests/scenarios/test_{name}.py" for name in scenarios] + ["tests/api/access/test_tokens.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    env = os.environ | {"TEST_AS_ACL_USER": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:]


@pytest.fixture
async def tls_redis(own_server: EmbeddedRedis, tmp_path: Path) -> AsyncIterator[tuple[Authority, int]]:
    """A server behind TLS that wants client certificates. The TLS ends in this process: not every server has it."""
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    context.load_cert_chain(*authority.issue("redis", "localhost"))
    context.verify_mode = ssl.CERT_REQUIRED
    line = LossyLine(unquote(urlsplit(own_server.url).path))
    server = await asyncio.start_server(line.carry, "127.0.0.1", 0, ssl=context)
    yield authority, server.sockets[0].getsockname()[1]
    await line.hang_up()
    server.close()


async def test_commands_and_listeners_use_the_files(tls_redis: tuple[Authority, int]) -> None:
    authority, port = tls_redis
    cert, key = authority.issue("service", "lachesis")
    url = SecretStr(f"rediss://localhost:{port}/0")
    settings = ServiceSettings(redis_url=url, redis_ca=authority.file, redis_cert=cert, redis_key=key)
    assert (await probe_patiently(store_url(settings), 5.0)).engine in ("Redis", "Valkey")
    client = RedisClient(store_url(settings), 5.0)
    assert await client.call("SET", "k", b"x" * 3_000_000)
    assert len(await client.call("GET", "k")) == 3_000_000
    assert await client.listeners.ping()
    await client.aclose()
    with pytest.raises(StoreMisconfigured, match="LACHESIS_REDIS_CA"):
        await probe_patiently(url.get_secret_value(), 5.0)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3/cr3t@host:6379/0",
        "redis://:33/cr3t@host",
        "redis://user:33#cr3t@host",
        "rediss://user:33?cr3t@host",
        "redis://:s3@cr3t/more@host",
        "redis://:s3[cr3t@host",
        "redis://:s3\u2100cr3t@host",  # which IDNA reads as a/c
        "unix://:33/cr3t@/run/redis.sock",
    ],
)
def test_a_password_that_ends_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(StoreMisconfigured, match=r"LACHESIS_REDIS_URL is not a Redis URL\. .* / as %2F") as refused:
        store_url(ServiceSettings(redis_url=SecretStr(url)))
    assert not re.search("s3|33|cr3t", str(refused.value))


@pytest.mark.parametrize("url", ["redis://host?foo=1", "rediss://host?foo=1", "unix:///run/redis.sock?foo=1"])
def test_an_option_of_the_url_that_nothing_reads_is_named(url: str) -> None:
    with pytest.raises(StoreMisconfigured, match=r"has the unknown option 'foo'\. Remove it"):
        store_url(ServiceSettings(redis_url=SecretStr(url)))


def test_a_database_that_is_no_number_is_refused() -> None:
    with pytest.raises(StoreMisconfigured, match="that its database is a number"):
        store_url(ServiceSettings(redis_url=SecretStr("redis://host:6379/O")))


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:s3%2Fcr3t%40@host:6379/0",
        "redis://:s3@cr3t@host",
        "redis://[::1]",
        "unix:///run/a@b.sock?db=1",
        "unix://user:s3%2F@/run/redis.sock",
    ],
)
def test_a_url_that_can_be_read_is_used_as_it_is(url: str) -> None:
    assert store_url(ServiceSettings(redis_url=SecretStr(url))) == url


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"redis_ca": Path("/nowhere")}, "LACHESIS_REDIS_CA=/nowhere: No such file"),
        ({"redis_cert": Path("/nowhere")}, "LACHESIS_REDIS_CERT=/nowhere"),
        ({"redis_key": Path("/nowhere")}, "LACHESIS_REDIS_KEY needs LACHESIS_REDIS_CERT"),
        ({"redis_ca": Path("x"), "redis_url": SecretStr("redis://h")}, "needs LACHESIS_REDIS_URL=rediss://"),
    ],
)
def test_wrong_files_are_named(given: dict[str, object], said: str) -> None:
    settings = ServiceSettings(**{"redis_url": SecretStr("rediss://h:1"), **given})  # type: ignore[arg-type]
    with pytest.raises(StoreMisconfigured, match=said):
        store_url(settings)
