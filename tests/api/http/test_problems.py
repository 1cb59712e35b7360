"""Every error is answered with its status and remedy, and names the place of a wrong value."""

import json
import re
from http import HTTPStatus

import httpx
import pytest

from app.api.http.problems import problem
from lachesis.wire import errors
from lachesis.wire.problems import meaning, place


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
    ours += (errors.MaintenanceEnded, errors.InternalError)
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
