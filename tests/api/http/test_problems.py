"""Every error is answered with its status and remedy, and names the place of a wrong value."""

import asyncio
import json
import re
from contextlib import suppress
from http import HTTPStatus

import httpx
import pytest
from fastapi.exceptions import RequestValidationError
from redis.asyncio import Redis
from starlette.types import Receive, Scope, Send

from app.api.http.access.refusals import Refusals
from app.api.http.problems import Problems, as_service_error, problem
from app.store.redis.keys import RunKeys
from lachesis.wire import errors
from lachesis.wire.problems import meaning, place
from tests.api.conftest import Start, served_to_one
from tests.api.log_capture import LogLines
from tests.scenarios.native_calls import RUN, make_run


@pytest.mark.parametrize("cls", errors.BY_CODE.values(), ids=errors.BY_CODE)
def test_every_error_says_what_it_means_and_what_to_do(cls: type[errors.ServiceError]) -> None:
    assert re.fullmatch("[a-z_]+", cls.code)
    assert meaning(cls).endswith(".")
    assert cls.remedy.endswith(".")


@pytest.mark.parametrize("cls", errors.BY_CODE.values(), ids=errors.BY_CODE)
def test_an_error_is_answered_with_its_status_code_and_remedy(cls: type[errors.ServiceError]) -> None:
    reply = problem(cls("three were short"))
    said = json.loads(bytes(reply.body))
    assert said == {
        "type": "about:blank",
        "title": HTTPStatus(cls.status).phrase,
        "status": reply.status_code,
        "code": cls.code,
        "detail": "three were short",
        "remedy": cls.remedy,
    }
    assert reply.status_code == cls.status


def test_no_error_of_the_caller_is_answered_as_ours() -> None:
    ours: tuple[type[Exception], ...] = (errors.TooManyConflicts, errors.StoreUnavailable, errors.IssuerUnavailable)
    ours += (errors.MaintenanceEnded, errors.ServiceStopping, errors.InternalError)
    for cls in errors.BY_CODE.values():
        assert (cls.status >= 500) == issubclass(cls, ours)


def test_a_place_reads_as_people_write_it() -> None:
    assert place((2, "tokens", 0, 17)) == "[2].tokens[0][17]"


async def test_a_problem_has_a_code_a_detail_and_places(client: httpx.AsyncClient) -> None:
    reply = await client.post("/register", json={"batch_size": "many"})
    problem = reply.json()
    assert (reply.status_code, problem["status"], problem["code"]) == (422, 422, "invalid_field")
    assert problem["errors"][0]["loc"]
    assert problem["detail"]


async def test_a_refused_path_or_method_is_answered_with_those_that_exist(client: httpx.AsyncClient) -> None:
    misspelt = (await client.get("/v1/rnus")).json()
    assert (misspelt["code"], misspelt["detail"]) == ("not_found", "there is no endpoint /v1/rnus")
    assert "/docs" in misspelt["remedy"]
    other = (await client.put("/v1/runs")).json()
    assert (other["code"], other["detail"]) == ("method_not_allowed", "/v1/runs takes GET, POST, not PUT")
    assert len((await client.get("/v1/" + 5000 * "x")).json()["detail"]) < 300


async def test_the_log_says_why_redis_refuses_but_not_each_time(
    start: Start, redis_client: Redis, log_lines: LogLines
) -> None:
    client = await start(relax_after_s=7)  # another application: the usual one may be silent still
    await make_run(client)
    await redis_client.hset(RunKeys("run").run, "config", "x")  # type: ignore[misc]
    for _ in range(20):
        assert (await client.get(RUN)).json()["code"] == "unreadable_record"
    await redis_client.set(RunKeys("run").run, "x")
    assert (await client.get(RUN)).json()["code"] == "store_refused"
    lines = log_lines.of("request failed")
    assert 2 <= len(lines) < 7, "a line after 0, 10, 30, 70, 150 s"
    assert (lines[0]["method"], lines[0]["path"], lines[0]["caller"]) == ("GET", RUN, "127.0.0.1")
    assert "run run" in lines[0]["reason"]
    assert "WRONGTYPE" in lines[-1]["reason"]


async def test_a_reply_that_fails_midway_ends_its_connection_and_is_one_line_in_the_log(
    log_lines: LogLines, caplog: pytest.LogCaptureFixture
) -> None:
    """The log had two tracebacks, as for a bug."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a line", "more_body": True})
        raise errors.CurriculumNotFound("the curriculum was removed while it was saved")

    loop, received = asyncio.get_running_loop(), b""
    async with served_to_one(Problems(app, Refusals(20.0))) as client:
        with suppress(ConnectionResetError):
            while data := await loop.sock_recv(client, 65536):
                received += data
    assert not received.endswith(b"0\r\n\r\n"), "the reply looks whole"
    (line,) = log_lines.of("reply broken off")
    assert (line["method"], line["path"]) == ("GET", "/")
    assert line["reason"] == "the curriculum was removed while it was saved"
    assert [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"] == []


NAME = "\x7f" * 500_000  # it may stand raw in JSON, and is escaped in a sentence
LARGE: dict[str, tuple[str, str, str]] = {
    "beside groups": ("POST", "/v1/runs/r/groups", '{"groups": [], "%s": 0}'),
    "a field of a group": ("POST", "/v1/runs/r/groups", '{"tokens": [[1]], "masks": [[1]], "scores": [1], "%s": 0}'),
    "a key of metadata": ("POST", "/v1/runs/r/groups", '{"tokens": [[1]], "metadata": {"%s": 1e999}}'),
    "beside fragments": ("POST", "/v1/runs/r/replay/fragments", '{"fragments": [], "%s": 0}'),
    "a setting": ("POST", "/v1/runs", '{"name": "s", "%.60000s": 1}'),
    "a field of a state": ("PUT", "/v1/runs/r/curricula/c/state", '{"%s": 1}'),
    "a setting of a state": ("PUT", "/v1/runs/r/curricula/c/state", '{"item_scores": {}, "strategy": "%s"}'),
    "a score": ("PUT", "/v1/runs/r/curricula/c/state", '{"item_scores": {"a": ["%s", 1]}}'),
    "scores": ("PUT", "/v1/runs/r/curricula/c/state", '{"item_scores": {"a": "%s"}}'),
    "an annotation": ("POST", "/v1/runs/r/groups/g/annotations", '{"annotations": {"%s": []}}'),
}


@pytest.mark.parametrize(("method", "path", "body"), LARGE.values(), ids=LARGE)
async def test_an_error_does_not_repeat_a_large_text(
    client: httpx.AsyncClient, method: str, path: str, body: str
) -> None:
    await client.post("/v1/runs", json={"name": "r", "batch_size": 1})
    await client.put("/v1/runs/r/curricula/c", json={})
    headers = {"Content-Type": "application/json"}
    reply = await client.request(method, path, content=(body % NAME).encode(), headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_field")
    assert len(reply.content) < 20_000


def test_a_long_name_and_a_long_message_are_cut_and_positions_stay() -> None:
    error = errors.InvalidField("is " + "y" * 2000, ("groups", 10**12, "x" * 81, "z" * 80))
    name, message = "x" * 77 + "...", "is " + "y" * 994 + "..."
    assert error.errors == ({"loc": ["groups", 10**12, name, "z" * 80], "msg": message},)
    assert error.location == ("groups", 10**12, name, "z" * 80)
    assert error.message == message
    assert str(error) == error.detail == f"groups[{10**12}].{name}.{'z' * 80}: {message}"
    again = errors.InvalidField(error.message, error.location)
    assert again.errors == error.errors, "what is cut is not cut again"


@pytest.mark.parametrize("cls", errors.BY_CODE.values(), ids=errors.BY_CODE)
def test_no_sentence_about_an_error_is_long(cls: type[errors.ServiceError]) -> None:
    error = cls("x" * 10_000)
    assert len(str(error)) < 2500
    assert error.detail.endswith("x...")


def test_wrong_parameters_are_not_repeated_at_length() -> None:
    many = RequestValidationError([{"type": "missing", "loc": ("query", "x" * 10_000), "msg": "y" * 10_000}])
    refused = as_service_error(many)
    assert refused is not None
    assert len(problem(refused).body) < 5000
