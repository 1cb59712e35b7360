"""``python -m app doctor``: each finding is made wrong for real."""

import asyncio
import json
import os
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from typer.testing import CliRunner

from app.cli.main import cli
from app.process.serve import checked_files
from app.settings import ServiceSettings
from app.store.access.store import AccessStore
from app.store.redis.keys import ACCESS
from app.store.server.checkup import NEEDED_COMMANDS
from app.store.server.data_dir import ServerDir
from app.store.server.embedded import EmbeddedRedis
from lachesis.wire.access import TokenCreated
from lachesis.wire.errors import StoreMisconfigured
from tests.acl_user import documented_rules, restricted_url
from tests.api.access.conftest import Tokens
from tests.api.conftest import Start, start
from tests.clients.command_line.terminal import findings_by_check, in_terminal
from tests.ports import free_port

__all__ = ["start"]  # the fixture

pytestmark = pytest.mark.long


async def examined(data_dir: Path, **settings: object) -> tuple[int, dict[str, Any]]:
    """Run the doctor; its exit code, and its findings by check: those that are not ok win."""
    ours = {name: None for name in os.environ if name.startswith("LACHESIS_")}
    given = {f"LACHESIS_{name.upper()}": str(value) for name, value in settings.items()}
    variables = ours | {"LACHESIS_DATA_DIR": str(data_dir), "LACHESIS_PORT": str(free_port())} | given
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["doctor", "--json"], env=variables)
    return done.exit_code, findings_by_check(done.stdout)


@pytest.mark.parametrize("columns", [80, 200])
async def test_a_sound_server_has_no_problem(own_server: EmbeddedRedis, columns: int) -> None:
    data_dir = Path(own_server.url.removeprefix("unix://")).parents[1]
    settings = {"LACHESIS_DATA_DIR": str(data_dir), "LACHESIS_PORT": str(free_port())}
    code, lines = await in_terminal(columns, "doctor", module="app", **settings)
    text = "\n".join(lines)
    assert (code, "problem" in text) == (0, False), text
    for check in ("settings", "engine", "data directory", "disk", "persistence", "memory", "clock", "tokens", "port"):
        assert f" {check}: " in text
    assert [line for line in lines if not line.isprintable()] == []


async def test_a_redis_that_evicts_or_is_full_or_not_durable_is_found(
    own_server: EmbeddedRedis, tmp_path: Path
) -> None:
    async def found() -> tuple[int, dict[str, Any]]:
        return await examined(tmp_path / "unused", redis_url=own_server.url)

    with Redis.from_url(own_server.url) as redis:
        redis.config_set("appendfsync", "everysec")
        code, findings = await found()
        assert (code, findings["persistence"]["state"]) == (0, "warning")
        redis.config_set("maxmemory", 0)
        assert (await found())[1]["memory"]["state"] == "warning"
        redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] * 1.02))
        code, findings = await found()
        assert (code, findings["memory"]["state"]) == (1, "problem")
        redis.config_set("maxmemory-policy", "allkeys-lru")
        code, findings = await found()
        assert (code, findings["redis"]["state"]) == (1, "problem")
        assert "allkeys-lru" in findings["redis"]["detail"]
        assert findings["redis"]["remedy"] == "Set maxmemory-policy to noeviction."
        redis.config_set("maxmemory-policy", "noeviction")


async def test_a_redis_that_cannot_be_used_is_found_with_what_to_do(own_server: EmbeddedRedis, tmp_path: Path) -> None:
    code, found = await examined(tmp_path, redis_url=f"redis://127.0.0.1:{free_port()}")
    assert (code, found["redis"]["state"]) == (1, "problem")
    wrong = own_server.url.replace("unix://", "unix://someone:wrong@")
    code, found = await examined(tmp_path, redis_url=wrong)
    assert (code, found["redis"]["state"]) == (1, "problem")
    assert "invalid username-password" in found["redis"]["detail"]
    assert found["redis"]["remedy"] == "Correct them in LACHESIS_REDIS_URL."
    code, found = await examined(tmp_path, redis_url="http://127.0.0.1")
    assert (code, found["redis"]["state"]) == (1, "problem")
    assert found["redis"]["detail"].startswith("LACHESIS_REDIS_URL is not a Redis URL: ")
    assert found["redis"]["remedy"].startswith("Use redis://HOST:PORT")
    code, found = await examined(tmp_path, redis_url=own_server.url, redis_ca=tmp_path / "ca.pem")
    assert (code, found["redis"]["state"]) == (1, "problem")
    assert found["redis"]["remedy"] == StoreMisconfigured.remedy


async def test_data_that_others_can_read_a_full_disk_and_a_newer_engine_are_found(tmp_path: Path) -> None:
    with EmbeddedRedis.start(tmp_path):
        pass
    home = tmp_path / "redis"
    home.chmod(0o755)
    code, found = await examined(tmp_path)
    assert (code, found["data directory"]["state"]) == (1, "problem")
    assert found["data directory"]["remedy"] == f"chmod -R go= {home}"
    home.chmod(0o700)
    with (home / "sparse").open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.truncate(1 << 42)  # it says that it has 4 TiB, and takes none
    code, found = await examined(tmp_path)
    assert (code, found["data directory"]["state"], found["disk"]["state"]) == (0, "ok", "warning")
    (home / "engine.json").write_text(json.dumps({"name": "Valkey", "version": "99.0.0"}))
    code, found = await examined(tmp_path)
    assert (code, found["engine"]["state"]) == (1, "problem")
    code, found = await examined(tmp_path, redis_bin="/bin/true")
    assert (code, found["engine"]["state"]) == (1, "problem")


async def test_a_file_that_the_server_deletes_in_the_meantime_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedRedis.start(tmp_path):
        pass
    old, rglob = tmp_path / "redis" / "old.incr.aof", Path.rglob

    def listed(folder: Path, pattern: str) -> list[Path]:
        found = list(rglob(folder, pattern))
        old.unlink(missing_ok=True)
        return found

    old.touch(0o600)
    monkeypatch.setattr(Path, "rglob", listed)
    code, found = await examined(tmp_path)
    assert (code, found["data directory"]["state"]) == (0, "ok"), found
    assert not old.exists()


async def test_a_missing_parser_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simdjson", None)
    code, found = await examined(tmp_path)
    assert (code, found["JSON parser"]["state"]) == (0, "warning")
    assert "four times" in found["JSON parser"]["detail"]
    assert found["JSON parser"]["remedy"].endswith("python -m pip install --no-binary pysimdjson pysimdjson")


def test_the_doctor_knows_the_documented_rights() -> None:
    assert [f"+{command}" for command in NEEDED_COMMANDS] == [one for one in documented_rules() if one[0] == "+"]


async def test_a_missing_right_of_the_redis_user_is_found_and_nothing_is_changed(
    own_server: EmbeddedRedis, tmp_path: Path
) -> None:
    async def found() -> tuple[int, dict[str, Any]]:
        return await examined(tmp_path / "unused", redis_url=url)

    url = restricted_url(own_server.url)
    with Redis.from_url(own_server.url) as redis:
        code, findings = await found()
        assert (code, "rights" in findings, "writes" in findings) == (0, False, False), findings
        rules = ["-evalsha", "-script|load", "-mset", "-subscribe", "resetchannels"]
        redis.execute_command("ACL", "SETUSER", "lachesis", *rules)  # type: ignore[no-untyped-call]
        code, findings = await found()
        assert (code, findings["rights"]["state"]) == (1, "problem")
        assert " no right to evalsha, script|load, publish, subscribe, mset on " in findings["rights"]["detail"]
        url = own_server.url
        redis.config_set("min-replicas-to-write", 1)
        code, findings = await found()
        assert (code, findings["writes"]["state"]) == (1, "problem")
        assert redis.keys("*") == []


@pytest.mark.parametrize("place", ["file", "file/below", "dangling"])
async def test_a_place_that_cannot_become_a_data_directory_is_found(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").mkdir()
    (tmp_path / "dangling" / "redis").symlink_to(tmp_path / "missing")
    with pytest.raises(StoreMisconfigured):
        ServerDir.take(tmp_path / place)
    code, found = await examined(tmp_path / place)
    assert (code, found["data directory"]["state"]) == (1, "problem")
    obstacle = tmp_path / ("dangling/redis" if place == "dangling" else "file")
    assert found["data directory"]["detail"] == f"{obstacle} is not a directory"


@pytest.mark.parametrize("place", ["locked", "locked/below", "unsearchable/below"])
async def test_a_place_that_this_user_cannot_write_to_is_found(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:  # which may write everywhere, except on a read-only file system
        monkeypatch.setattr(os, "access", lambda path, _: Path(path).stat().st_mode & 0o300 == 0o300)
    (tmp_path / "locked").mkdir(mode=0o500)
    (tmp_path / "unsearchable").mkdir(mode=0o400)
    code, found = await examined(tmp_path / place)
    assert (code, found["data directory"]["state"]) == (1, "problem")
    assert found["data directory"]["detail"] == f"this user cannot write to {tmp_path / place.partition('/')[0]}"


async def test_an_engine_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir(mode=0o700)
    record = tmp_path / "redis" / "engine.json"
    record.touch(0o600)
    code, found = await examined(tmp_path)
    assert (code, found["engine"]["state"]) == (1, "problem")
    assert found["engine"]["detail"].startswith(f"{record} cannot be read")
    assert found["engine"]["remedy"].startswith("Remove it if the same engine")


async def test_wrong_settings_ports_and_limits_are_found(tmp_path: Path, start: Start) -> None:
    code, found = await examined(tmp_path, port="many")
    assert (code, found["settings"]["state"]) == (1, "problem")
    with socket.create_server(("127.0.0.1", 0)) as other:
        code, found = await examined(tmp_path, port=other.getsockname()[1])
        assert (code, found["port"]["state"]) == (1, "problem")
    code, found = await examined(tmp_path, port=(await start()).base_url.port)
    assert (code, found["port"]["state"]) == (0, "ok")
    full = await start(max_connections=1)
    await full.get("/healthz")
    code, found = await examined(tmp_path, port=full.base_url.port)
    assert code == 1
    assert f"127.0.0.1:{full.base_url.port} refuses connections: the process has 1 open" in found["port"]["detail"]
    code, found = await examined(tmp_path, host="192.0.2.1")  # of no machine (RFC 5737)
    assert (code, found["port"]["state"]) == (1, "problem")
    _, found = await examined(tmp_path, max_connections=10**9)
    assert found["open files"]["state"] == "warning"


@pytest.mark.parametrize("setting", ["tls_cert", "tls_client_ca", "tokenizer_file"])
async def test_files_that_stop_the_start_of_the_service_are_found(tmp_path: Path, setting: str) -> None:
    given = {setting: tmp_path / "none"}
    with pytest.raises(StoreMisconfigured) as refusal:
        checked_files(ServiceSettings(**given))
    code, found = await examined(tmp_path, **given)
    assert (code, found["settings"]["state"], found["settings"]["detail"]) == (1, "problem", refusal.value.detail)


@pytest.mark.parametrize("name", ["none", "n" * 300])  # no user may look at the second one, also not root
async def test_a_missing_folder_of_datasets_is_found(tmp_path: Path, name: str) -> None:
    code, found = await examined(tmp_path, datasets_dir=tmp_path / name)
    assert (code, found["settings"]["state"]) == (0, "warning")


async def test_missing_and_ending_tokens_are_found(own_server: EmbeddedRedis, tmp_path: Path) -> None:
    open_to_all = {"redis_url": own_server.url, "host": "0.0.0.0"}
    code, found = await examined(tmp_path, **open_to_all)
    assert (code, found["tokens"]["state"]) == (1, "problem")
    tokens = Tokens(own_server.url)
    await tokens.make("viewer", "math")
    code, found = await examined(tmp_path, **open_to_all)
    assert (code, found["tokens"]["detail"]) == (
        0,
        "the service asks for credentials, and no token of an operator is valid",
    )
    await tokens.make("operator")
    assert (await examined(tmp_path, **open_to_all))[1]["tokens"]["state"] == "ok"
    (operator,) = [one for one in await tokens.administration.list() if one.record.role == "operator"]
    await tokens.administration.revoke(operator.record.token_id)
    assert "no token of an operator" in (await examined(tmp_path, **open_to_all))[1]["tokens"]["detail"]
    await tokens.connection.aclose()


@pytest.mark.parametrize(
    ("options", "holder"),
    [
        (["--role", "trainer", "--run", "math"], "trainer"),
        (
            ["--role", "environment", "--run", "a-*", "--run", "b", "--environment", "it's", "--name", "x y"],
            "environment x y",
        ),
        (["--role", "viewer", "--run", "*", "--contents"], "viewer"),
    ],
)
async def test_the_command_for_an_ending_token_makes_one_with_the_same_rights(
    own_server: EmbeddedRedis, tmp_path: Path, options: list[str], holder: str
) -> None:
    def create(*given: str) -> TokenCreated:
        done = CliRunner().invoke(
            cli, ["token", "create", *given, "--json"], env={"LACHESIS_REDIS_URL": own_server.url}
        )
        assert done.exit_code == 0, done.output
        return TokenCreated.model_validate_json(done.stdout)

    settings = {"redis_url": own_server.url}
    await asyncio.to_thread(create, "--role", "operator")
    ending = await asyncio.to_thread(create, *options, "--expires", "7d")
    assert (await examined(tmp_path, **settings))[1]["tokens"]["state"] == "ok"  # it was made for a week
    with Redis.from_url(own_server.url) as redis:
        record = json.loads(redis.hget(ACCESS, f"token:{ending.id}"))
        redis.hset(ACCESS, f"token:{ending.id}", json.dumps(record | {"created_ms": record["created_ms"] - 1000}))
    _, found = await examined(tmp_path, **settings)
    assert found["tokens"]["detail"] == f"token {ending.id} ({holder}) expires within a week"
    command = shlex.split(found["tokens"]["remedy"])
    assert command[:5] == ["python", "-m", "app", "token", "create"]
    successor = await asyncio.to_thread(create, *command[5:])
    rights = {"role", "runs", "environment", "contents", "name"}
    assert successor.model_dump(include=rights) == ending.model_dump(include=rights)


@pytest.mark.parametrize("setting", [{"published_on": "0.0.0.0"}, {"host": "127.1"}])
async def test_a_service_on_a_loopback_address_needs_no_token(
    own_server: EmbeddedRedis, tmp_path: Path, setting: dict[str, str]
) -> None:
    """As `serve` starts it: wherever a container would be published, and under another name of the address."""
    code, found = await examined(tmp_path, redis_url=own_server.url, **setting)
    assert (code, found["tokens"]["state"]) == (0, "ok"), found


async def test_tokens_that_cannot_be_read_are_a_finding(own_server: EmbeddedRedis, tmp_path: Path) -> None:
    with Redis.from_url(own_server.url) as redis:
        redis.hset(ACCESS, "token:0f3a5c7e9b1d", "{}")
        code, found = await examined(tmp_path, redis_url=own_server.url)
        assert (code, found["tokens"]["state"]) == (1, "problem")
        assert found["tokens"]["detail"] == "the record of token 0f3a5c7e9b1d cannot be read"
        redis.delete(ACCESS)
        redis.set(ACCESS, "of another type")
    code, found = await examined(tmp_path, redis_url=own_server.url)
    assert (code, found["tokens"]["state"]) == (1, "problem")


@pytest.mark.parametrize("closed", [False, True])
async def test_a_public_service_without_tokens_may_have_other_credentials(
    own_server: EmbeddedRedis, tmp_path: Path, *, closed: bool
) -> None:
    """As `serve` accepts them, before its first start and after it."""
    if closed:
        tokens = Tokens(own_server.url)
        await AccessStore(tokens.connection).mark_closed()
        await tokens.connection.aclose()
    file, rules = tmp_path / "admin-token", tmp_path / "rules.toml"
    file.write_text("x" * 40)
    rules.write_text('[[rule]]\nclaim = "groups"\nvalue = "ml"\nrole = "operator"\n')
    public = {"redis_url": own_server.url, "host": "0.0.0.0"}
    jwt = {"jwt_issuer": "https://issuer.example", "jwt_audience": "lachesis", "jwt_rules": rules}
    for other, named in (({"admin_token_file": file}, "LACHESIS_ADMIN_TOKEN_FILE"), (jwt, "LACHESIS_JWT_ISSUER")):
        code, found = await examined(tmp_path, **public, **other)
        assert (code, found["tokens"]["state"]) == (0, "ok"), found
        assert found["tokens"]["detail"] == f"0 are valid, besides the credentials of {named}"
    code, found = await examined(tmp_path, **public, admin_token_file=tmp_path / "none")
    assert (code, found["settings"]["state"]) == (1, "problem")
    assert "LACHESIS_ADMIN_TOKEN_FILE" in found["settings"]["detail"]
