"""Redis over TLS, and the service as the ACL user of docs/security.md."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from redis import Redis
from redis.exceptions import NoPermissionError

from app.settings import Settings
from app.store.redis.address import store_url
from app.store.redis.client import RedisClient
from app.store.server.embedded import EmbeddedRedis
from app.store.server.probe import probe_patiently
from lachesis.wire.errors import StoreMisconfigured
from tests.acl_user import documented_rules, restricted_url
from tests.authority import Authority
from tests.e2e.processes import wait_until
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
STORE = ROOT / "app" / "store"
COMMAND = re.compile(r"(?<!\*)\(\"([A-Z]{3,})\"[,)]")  # the first word of a command
needs_tls = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="no redis-server, which has TLS, is installed"
)


def test_the_user_may_do_all_that_scripts_do_and_nothing_dangerous(own_server: EmbeddedRedis) -> None:
    rules = documented_rules()
    allowed = {rule[1:] for rule in rules if rule.startswith("+")}
    used = {command.lower() for file in STORE.rglob("*.py") for command in COMMAND.findall(file.read_text())}
    used -= {"select", "script", "limit"}  # another database; its subcommand is allowed; an argument
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
def tls_redis(tmp_path: Path) -> Iterator[tuple[Authority, int]]:
    """A Redis that speaks TLS alone, and wants client certificates."""
    authority, port = Authority(tmp_path), free_port()
    cert, key = authority.issue("redis", "localhost")
    files = ["--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file", str(authority.file)]
    command = [shutil.which("redis-server") or "", "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1"]
    log = tmp_path / "redis.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*command, *files, "--appendonly", "yes", "--dir", str(tmp_path)], stdout=out)
    try:
        wait_until("Redis listens", lambda: b"Ready to accept connections" in log.read_bytes())
        yield authority, port
    finally:
        process.kill()
        process.wait()


@needs_tls
async def test_commands_and_listeners_use_the_files(tls_redis: tuple[Authority, int]) -> None:
    authority, port = tls_redis
    cert, key = authority.issue("service", "lachesis")
    url = SecretStr(f"rediss://localhost:{port}/0")
    settings = Settings(redis_url=url, redis_ca=authority.file, redis_cert=cert, redis_key=key)
    assert (await probe_patiently(store_url(settings), 5.0)).engine == "Redis"
    client = RedisClient(store_url(settings), 5.0)
    assert await client.call("SET", "k", b"x" * 3_000_000)
    assert len(await client.call("GET", "k")) == 3_000_000
    assert await client.listeners.ping()
    await client.aclose()
    with pytest.raises(StoreMisconfigured, match="LACHESIS_REDIS_CA"):
        await probe_patiently(url.get_secret_value(), 5.0)


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
    settings = Settings(**{"redis_url": SecretStr("rediss://h:1"), **given})  # type: ignore[arg-type]
    with pytest.raises(StoreMisconfigured, match=said):
        store_url(settings)
