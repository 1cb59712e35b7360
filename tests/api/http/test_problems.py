"""Every error class has a status, and every reply for people to read names the place."""

from pathlib import Path

import httpx
import pytest

from app.api.http.problems import STATUS, place, status_of
from app.core import errors


def subclasses(cls: type[errors.LachesisError]) -> list[type[errors.LachesisError]]:
    return [found for sub in cls.__subclasses__() for found in (sub, *subclasses(sub))]


@pytest.mark.parametrize("cls", subclasses(errors.LachesisError))
def test_every_error_class_is_in_the_table(cls: type[errors.LachesisError]) -> None:
    assert cls in STATUS
    assert 400 <= status_of(cls("message")) < 600


def test_no_error_of_the_caller_is_answered_as_ours() -> None:
    for cls, status in STATUS.items():
        assert (status >= 500) == issubclass(cls, errors.StoreUnavailable)


@pytest.mark.parametrize("cls", [cls for cls in STATUS if not cls.__subclasses__()], ids=lambda cls: cls.code)
def test_every_code_is_documented_with_its_status(cls: type[errors.LachesisError]) -> None:
    table = (Path(__file__).parents[3] / "docs" / "how-to" / "http-api.md").read_text().partition("## Errors")[2]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("|")]
    assert [str(STATUS[cls]) in row[1] for row in rows if f"`{cls.code}`" in row[2]] == [True]


def test_a_place_reads_as_people_write_it() -> None:
    assert place((2, "tokens", 0, 17)) == "[2].tokens[0][17]"


async def test_a_problem_has_a_code_a_detail_and_places(client: httpx.AsyncClient) -> None:
    reply = await client.post("/register", json={"batch_size": "many"})
    problem = reply.json()
    assert (reply.status_code, problem["status"], problem["code"]) == (422, 422, "invalid_field")
    assert problem["errors"][0]["loc"]
    assert problem["detail"]


async def test_a_path_or_a_method_that_is_not_there_is_told_with_what_is(client: httpx.AsyncClient) -> None:
    misspelt = (await client.get("/v1/rnus")).json()
    assert (misspelt["code"], misspelt["detail"]) == ("not_found", "nothing is at /v1/rnus; /docs lists every endpoint")
    other = (await client.put("/v1/runs")).json()
    assert (other["code"], other["detail"]) == ("method_not_allowed", "/v1/runs takes GET, POST, not PUT")
    assert len((await client.get("/v1/" + 5000 * "x")).json()["detail"]) < 300
