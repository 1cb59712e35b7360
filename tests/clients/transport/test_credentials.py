"""Tokens of the SDK, against a service that asks for them."""

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from app.services.access.tokens import NewToken, TokenAdministration
from app.store.access.rate_limits import LimitStore
from app.store.access.store import AccessStore
from app.store.redis.client import RedisClient
from lachesis import AsyncCurriculum, AsyncEnvironment, AsyncReplay, AsyncTrainer, Settings, Trainer
from lachesis._transport.credentials import Credentials
from lachesis.errors import PermissionDenied, RunNotFound, ServiceError, Unauthorized, Unreachable
from tests.api.conftest import running_service
from tests.clients.groups.test_atropos import Env, scored
from tests.clients.proxy import CuttingProxy
from tests.clients.run import group
from tests.clients.transport.test_ping import ping
from tests.waiting import wait_until

CANARY = "lch_op_0000000000000000_CANARYCANARYCANARY"


@pytest.fixture
async def tokens(redis_url: str, redis_client: Redis) -> AsyncIterator[TokenAdministration]:
    connection = RedisClient(redis_url, 5.0)
    yield TokenAdministration(AccessStore(connection), LimitStore(connection))
    await connection.aclose()


@pytest.fixture
async def operator(tokens: TokenAdministration) -> str:
    """A token of an operator: the service asks for tokens."""
    return (await tokens.create(NewToken("operator", ()), None))[1]


@pytest.fixture
async def url(redis_url: str, operator: str) -> AsyncIterator[str]:
    async with running_service(redis_url) as client:
        yield str(client.base_url).rstrip("/")


async def test_every_class_sends_the_token(url: str, operator: str) -> None:
    async with AsyncTrainer(url, run="math", token=operator) as trainer:
        await trainer.create_run(batch_size=2)
    async with AsyncEnvironment("gsm8k", url, run="math", token=operator) as environment:
        assert environment.outcomes == {}
    async with AsyncReplay(Settings(url, run="math"), token=operator) as replay:
        await replay.set_up()
    async with AsyncCurriculum("sums", url, run="math", token=operator) as curriculum:
        await curriculum.set_up()


async def test_the_token_of_the_environment_is_sent(url: str, operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACHESIS_TOKEN", operator)
    async with AsyncTrainer(url, run="math") as trainer:
        assert (await trainer.create_run(batch_size=2)).name == "math"


async def test_the_password_of_the_url_is_sent_unless_there_is_a_token(url: str, operator: str) -> None:
    base = url.replace("http://", f"http://me:{operator}@")
    async with AsyncTrainer(base, run="math") as trainer:
        await trainer.create_run(batch_size=2)
    async with AsyncTrainer(base, run="math", token=CANARY) as trainer:
        with pytest.raises(Unauthorized, match="the token given as `token`"):
            await trainer.run()


@pytest.mark.parametrize("where", ["password", "variable"])
async def test_an_atropos_environment_sends_the_token_with_groups_in_binary(
    url: str, operator: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = f"{url}/runs/math/atropos"
    if where == "password":
        base = base.replace("http://", f"http://gsm8k:{operator}@")
    else:
        monkeypatch.setenv("LACHESIS_TOKEN", operator)
    async with AsyncTrainer(url, run="math", token=operator) as trainer:
        await trainer.create_run(batch_size=2)
        env = Env(base, None)
        await env.send(scored(1))
        await env.close_lachesis()
        assert (await trainer.status()).groups.queued == 1


async def test_a_refused_token_has_an_exit_code_of_its_own(url: str, operator: str) -> None:
    assert [(await ping(url, "--run", "none", LACHESIS_TOKEN=token))[0] for token in (CANARY, operator)] == [4, 1]


async def test_the_token_of_a_worker_can_ask_whether_the_service_is_well(url: str, tokens: TokenAdministration) -> None:
    """Workers have `LACHESIS_RUN`, but may not read the status of the run."""
    _, worker = await tokens.create(NewToken("environment", ("math",)), None)
    code, out, err = await ping(url, LACHESIS_TOKEN=worker, LACHESIS_RUN="math")
    assert (code, err, out.splitlines()[-1]) == (0, "", "run math: the role of this token may not read its status")
    code, out, _ = await ping(url, "--json", LACHESIS_TOKEN=worker, LACHESIS_RUN="math")
    found = json.loads(out)
    assert (code, found["ready"], found["run"], found["error"]) == (0, True, None, None)


async def test_a_rotated_file_is_read_again(url: str, tokens: TokenAdministration, tmp_path: Path) -> None:
    first, text = await tokens.create(NewToken("operator", ()), None)
    file = tmp_path / "token"
    file.write_text(text + "\n")
    async with AsyncTrainer(Settings(url, run="math", token_file=str(file))) as trainer:
        await trainer.create_run(batch_size=2)
        _, rotated = await tokens.create(NewToken("operator", ()), None)
        await tokens.revoke(first.record.token_id)
        fresh = tmp_path / "fresh"
        fresh.write_text(rotated)
        fresh.replace(file)
        assert (await trainer.run()).name == "math"
        file.unlink()
        assert (await trainer.run()).name == "math", "the last token stays"


async def test_groups_and_heartbeats_wait_for_the_next_token(
    url: str, operator: str, tokens: TokenAdministration, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first one ends before the operator has written the next one."""
    first, text = await tokens.create(NewToken("operator", ()), None)
    file = tmp_path / "token"
    file.write_text(text)
    async with AsyncTrainer(url, run="math", token=operator) as trainer:
        await trainer.create_run(batch_size=2)
        settings = Settings(url, run="math", token_file=str(file))
        async with AsyncEnvironment("gsm8k", settings, heartbeat_s=0.1) as environment:
            await tokens.revoke(first.record.token_id)
            await wait_until(lambda: "The next heartbeat follows in 0.1 s" in caplog.text)
            await environment.submit(group(1))
            await wait_until(lambda: isinstance(environment.trouble, Unauthorized))
            _, renewed = await tokens.create(NewToken("operator", ()), None)
            fresh = tmp_path / "fresh"
            fresh.write_text(renewed)
            fresh.replace(file)
            await environment.flush()
            assert environment.outcomes == {"accepted": 1}
        assert (await trainer.status()).groups.queued == 1
    assert text not in caplog.text


def test_a_token_file_is_looked_at_again_after_a_refusal(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    credentials = Credentials(Settings(token_file=str(file)))
    assert credentials.headers() == {"Authorization": "Bearer first"}
    assert not credentials.look_again()
    (tmp_path / "other").write_text("second")
    (tmp_path / "other").replace(file)
    assert credentials.look_again()
    assert credentials.headers() == {"Authorization": "Bearer second"}
    file.write_text("")
    assert not credentials.look_again()
    assert credentials.headers() == {"Authorization": "Bearer second"}


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({}, "no token: set LACHESIS_TOKEN or LACHESIS_TOKEN_FILE, or pass `token`"),
        ({"token": CANARY}, "the token given as `token`"),
        ({"token_file": "FILE"}, "the token in .*FILE"),
        ({"url": "PASSWORD"}, "the password in the URL"),
    ],
)
async def test_a_refused_token_is_named_by_its_source_and_never_shown(
    url: str, settings: dict[str, Any], source: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if "token_file" in settings:
        (tmp_path / "FILE").write_text(CANARY)
        settings = {"token_file": str(tmp_path / "FILE")}
    secret = url.replace("http://", f"http://me:{CANARY}@")
    asked = Settings(**({"url": url} | settings if settings.get("url") is None else {"url": secret}), run="math")
    caplog.set_level(logging.DEBUG)
    async with AsyncTrainer(asked) as trainer:
        with pytest.raises(Unauthorized, match=source) as raised:
            await trainer.run()
        told = [str(raised.value), repr(raised.value), repr(trainer), repr(asked), str(trainer.settings.facts())]
    told += [*traceback.format_exception(raised.value), caplog.text]
    assert "CANARY" not in "\n".join(told)


async def test_an_unreachable_service_does_not_show_the_token(proxy: CuttingProxy) -> None:
    proxy.upstream = None
    base = proxy.url.replace("http://", f"http://me:{CANARY}@")
    for settings in (Settings(base, retry_budget_s=0), Settings(proxy.url, token=CANARY, retry_budget_s=0)):
        async with AsyncTrainer(settings) as trainer:
            with pytest.raises(Unreachable) as raised:
                await trainer.run()
        assert "CANARY" not in "".join(traceback.format_exception(raised.value)) + repr(trainer)


async def test_a_foreign_run_is_unknown_and_a_small_role_learns_what_it_lacks(
    url: str, tokens: TokenAdministration
) -> None:
    _, trainer_token = await tokens.create(NewToken("trainer", ("math-*",)), None)
    async with AsyncTrainer(url, run="code", token=trainer_token) as trainer:
        with pytest.raises(RunNotFound):
            await trainer.run()
    _, viewer_token = await tokens.create(NewToken("viewer", ("math-*",)), None)
    async with AsyncTrainer(url, run="math-1", token=viewer_token) as trainer:
        with pytest.raises(PermissionDenied, match="role viewer"):
            await trainer.set_policy_version(1)


@pytest.mark.parametrize("where", ["token", "password"])
async def test_a_proxy_of_the_environment_never_gets_the_token(
    where: str, url: str, operator: str, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("http_proxy", proxy.url)
    proxy.upstream = None
    settings = Settings(url, token=operator)
    if where == "password":
        settings = Settings(url.replace("http://", f"http://me:{operator}@"))
    async with AsyncTrainer(settings, run="math") as trainer:
        assert (await trainer.create_run(batch_size=2)).name == "math"  # not through the proxy, which is down


async def test_the_target_of_a_redirect_never_gets_the_token(proxy: CuttingProxy) -> None:
    proxy.upstream = None

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {proxy.url}/\r\nContent-Length: 0\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        settings = Settings(f"http://{host}:{port}", token=CANARY, retry_budget_s=0)
        async with AsyncTrainer(settings, run="math") as trainer:
            with pytest.raises(ServiceError) as raised:
                await trainer.run()
    assert (raised.value.status, proxy.refused) == (307, 0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token": ""}, "token: should be one token"),
        ({"token": "two words"}, "token: should be one token"),
        ({"token": "new\nline"}, "token: should be one token"),
        ({"token": "ünicode"}, "token: should be one token"),
        ({"token_file": "/nowhere/token"}, "token_file: cannot read /nowhere/token: No such file"),
    ],
)
def test_a_token_that_cannot_be_one_is_refused_without_showing_it(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        Trainer(Settings(**given))
    assert given.get("token") not in (*str(raised.value).split(), str(raised.value)) or not given.get("token")


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ValueError, match=r"token_file: .*token should be one token of printable ASCII"):
        Trainer(Settings(token_file=str(tmp_path / "token")))


def test_a_wrong_url_is_shown_without_its_password() -> None:
    for wrong in (f"ftp://me:{CANARY}@host", f"me:{CANARY}@host:80", f"http://me:{CANARY}@host:0/v1"):
        with pytest.raises(ValueError, match="url: should") as raised:
            Settings(wrong)
        assert "CANARY" not in str(raised.value)
