"""``python -m lachesis doctor``: each finding is made wrong for real."""

import asyncio
import json
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.api.http.problems import problem
from lachesis import AsyncEnvironment, AsyncTrainer, Settings
from lachesis.errors import ClosedByDefault, InternalError, ServiceError, TooManyConnections
from tests.api.access.conftest import Tokens, tokens
from tests.api.conftest import Start, start
from tests.clients.another_server import another_server
from tests.clients.command_line.terminal import findings_by_check, in_terminal, piped
from tests.forked import environment
from tests.ports import free_port
from tests.waiting import wait_until

__all__ = ["start", "tokens"]  # fixtures

pytestmark = [pytest.mark.long, pytest.mark.timeout(200)]

Examine = Callable[..., Awaitable[tuple[int, dict[str, Any]]]]


async def examined(*words: str, **variables: str) -> tuple[int | None, dict[str, Any]]:
    """Run the doctor; its exit code, and its findings by check: those that are not ok win."""
    code, out, err = await piped("doctor", "math", "--json", *words, **variables)
    assert err == ""
    return code, findings_by_check(out)


@pytest.mark.parametrize("columns", [80, 200])
async def test_a_healthy_service_has_no_problem(run: Settings, columns: int) -> None:
    code, lines = await in_terminal(columns, "doctor", "math", LACHESIS_URL=run.url)
    assert code == 0, lines
    text = "\n".join(lines)
    assert "ok       service: http://127.0.0.1:" in text
    assert "ok       persistence: " in text
    assert "problem" not in text
    assert [line for line in lines if not line.isprintable()] == []


async def test_a_closed_port_a_wrong_name_and_another_program_have_different_findings() -> None:
    port = free_port()
    code, found = await examined(LACHESIS_URL=f"http://127.0.0.1:{port}")
    assert (code, found["service"]["state"]) == (3, "problem")
    assert f"port {port}" in found["service"]["remedy"]
    code, found = await examined(LACHESIS_URL="http://no-such-host.invalid:8000")
    assert (code, found["host name"]["state"]) == (3, "problem")
    async with another_server("HTTP/1.1 404 Not Found") as url:
        code, found = await examined(LACHESIS_URL=url)
    assert (code, found["service"]["state"]) == (1, "problem")
    assert found["service"]["detail"].startswith("another program answers: ")


async def test_another_clock_is_noticed(run: Settings) -> None:
    assert (await examined(LACHESIS_URL=run.url))[1]["clock"]["state"] == "ok"
    async with another_server("HTTP/1.1 200 OK", "date: Mon, 01 Jan 2024 00:00:00 GMT") as url:
        code, found = await examined(LACHESIS_URL=url)
    assert (code, found["clock"]["state"]) == (1, "problem")
    assert " s ahead of the service" in found["clock"]["detail"]
    async with another_server("HTTP/1.1 200 OK") as url:
        assert (await examined(LACHESIS_URL=url))[1]["clock"]["state"] == "warning"


async def test_a_wrong_token_and_a_role_without_the_status_are_noticed(run: Settings, tokens: Tokens) -> None:
    await tokens.make("operator")

    async def is_closed() -> bool:
        return (await examined(LACHESIS_URL=run.url))[0] == 4

    await wait_until(is_closed)
    code, found = await examined(LACHESIS_URL=run.url, LACHESIS_TOKEN="wrong")
    assert (code, found["token"]["state"]) == (4, "problem")
    worker = await tokens.make("environment", "math")
    code, found = await examined(LACHESIS_URL=run.url, LACHESIS_TOKEN=worker)
    assert (code, found["token"]["state"]) == (0, "ok"), found
    assert "may not read the status" in found["run"]["detail"]
    assert found["token"]["detail"].startswith("the service accepts requests with this token; ")
    assert "encryption" not in found, "this machine alone can read it"
    _, found = await examined(LACHESIS_URL=f"http://no-such-host.invalid:{free_port()}", LACHESIS_TOKEN=worker)
    assert found["encryption"]["state"] == "warning"


async def test_a_missing_run_and_a_run_that_cannot_work_are_noticed(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run, group_size=3):  # for batches of two

        async def is_warned() -> bool:
            return bool((await trainer.status()).warnings)

        await wait_until(is_warned)
        code, found = await examined(LACHESIS_URL=run.url)
    assert (code, found["run"]["state"]) == (1, "problem")
    assert found["run"]["detail"].startswith("warning: ")
    code, _, _ = await piped("doctor", "none-such", "--json", LACHESIS_URL=run.url)
    assert code == 1


async def test_a_run_without_a_batch_says_what_is_missing(run: Settings) -> None:
    """Nothing is wrong with it: it waits."""
    code, found = await examined(LACHESIS_URL=run.url)
    assert (code, found["run"]["state"]) == (0, "ok")
    assert found["run"]["detail"] == (
        "math: step 0, 0 groups queued, no warning; no batch yet: a batch needs 2 sequences; the queue has 0 that fit; "
        "no environment has joined: start one"
    )


async def test_a_run_is_checked_only_if_it_is_named(settings: Settings) -> None:
    """The service has no run, neither `default` nor another."""

    async def examined_without(*words: str, **variables: str) -> tuple[int | None, str, str]:
        code, out, _ = await piped("doctor", "--json", *words, **variables)
        found = findings_by_check(out)["run"]
        return code, found["state"], found["detail"]

    service, atropos = settings.url, f"{settings.url}/runs/typo/atropos"
    assert await examined_without(LACHESIS_URL=service) == (0, "ok", "none is named, so none is checked")
    for words, variables in (
        (["typo"], {"LACHESIS_URL": service}),
        ([], {"LACHESIS_URL": service, "LACHESIS_RUN": "typo"}),
        ([], {"LACHESIS_URL": atropos}),
        (["--url", atropos], {"LACHESIS_URL": service}),
    ):
        code, state, detail = await examined_without(*words, **variables)
        assert (code, state, "typo" in detail) == (1, "problem", True), (words, variables)


async def test_foreign_host_names_and_insecure_services_are_noticed(start: Start, run: Settings) -> None:
    service = await start(insecure=True)
    _, found = await examined(LACHESIS_URL=str(service.base_url))
    assert found["access"]["state"] == "warning"
    refusal = '{"code": "foreign_host", "detail": "lachesis.example is not a known host name"}'
    async with another_server("HTTP/1.1 403 Forbidden", body=refusal) as url:
        code, found = await examined(LACHESIS_URL=url)
    assert (code, found["host name"]["state"]) == (1, "problem")
    assert "LACHESIS_ALLOWED_HOSTS" in found["host name"]["remedy"]


@pytest.mark.parametrize(
    ("path", "refusal", "check", "expected"),
    [
        ("/version", ClosedByDefault("the service has no authentication and listens on 10.0.0.7"), "token", 4),
        ("/version", InternalError("the service failed"), "service", 1),
        ("/healthz", TooManyConnections("this address has 512 connections"), "service", 1),
    ],
)
async def test_a_refusal_is_not_taken_for_another_program(
    path: str, refusal: ServiceError, check: str, expected: int
) -> None:
    reply = problem(refusal)
    refusals = {path: (f"HTTP/1.1 {reply.status_code} Refused", bytes(reply.body).decode())}
    async with another_server("HTTP/1.1 200 OK", refusals=refusals) as url:
        code, found = await examined(LACHESIS_URL=url)
    assert (code, found[check]["state"]) == (expected, "problem")
    assert (found[check]["detail"], found[check]["remedy"]) == (refusal.detail, refusal.remedy)


async def test_a_service_that_is_not_ready_is_not_one_that_does_not_answer(run: Settings) -> None:
    (maintenance,) = [task for task in asyncio.all_tasks() if task.get_name() == "maintenance"]
    maintenance.cancel()
    await asyncio.wait([maintenance])
    code, found = await examined(LACHESIS_URL=run.url)
    assert (code, found["ready"]["state"]) == (1, "problem")


async def test_few_open_files_are_noticed(run: Settings) -> None:
    command = shlex.join([sys.executable, "-m", "lachesis", "doctor", "math", "--json"])
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", f"ulimit -n 256; {command}"],
        env=environment(LACHESIS_URL=run.url),
        capture_output=True,
        text=True,
        check=True,
    )
    first = json.loads(done.stdout.splitlines()[0])
    assert (first["check"], first["state"], first["remedy"]) == ("open files", "warning", "ulimit -n 1024")
