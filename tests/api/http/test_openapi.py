"""What /docs shows: every endpoint explained, and `docs/openapi.json` as the code has it."""

from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import ServiceSettings
from lachesis.wire import errors
from tests.api.http.conformance import OPENAPI, PROBES, answers, body_schema, reply_validator
from tools.http_reference import NOUNS

OPERATIONS = [
    (f"{method.upper()} {path}", operation)
    for path, methods in OPENAPI["paths"].items()
    for method, operation in methods.items()
]


def test_the_committed_document_is_up_to_date() -> None:
    assert create_app(ServiceSettings()).openapi() == OPENAPI, "run `make openapi`"


@pytest.mark.parametrize("operation", [o for _, o in OPERATIONS], ids=[name for name, _ in OPERATIONS])
def test_every_operation_says_what_it_does(operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]


@pytest.mark.parametrize("name", [name for name, _ in OPERATIONS])
def test_every_operation_except_probes_documents_how_access_is_refused(name: str) -> None:
    documented = dict(OPERATIONS)[name]["responses"].keys()
    is_probe = name.removeprefix("GET ") in PROBES
    assert documented & {"401", "403", "429"} == (set() if is_probe else {"401", "403", "429"})


@pytest.mark.parametrize("name", [name for name, _ in OPERATIONS])
def test_every_operation_says_who_may_call_it(name: str) -> None:
    operation = dict(OPERATIONS)[name]
    is_probe = name.removeprefix("GET ") in PROBES
    needed = operation["description"].rpartition("\n\n")[2]
    assert needed == "Needs no credentials." if is_probe else needed.startswith("Needs role ")
    assert ("security" in operation) == is_probe, "the document has the credentials of all others"


@pytest.mark.parametrize("name", [name for name, _ in OPERATIONS])
def test_examples_of_replies_fit_their_schemas(name: str) -> None:
    method, path = name.split()
    for status, answer in answers((method, path)).items() if path not in PROBES else ():
        for media_type, content in answer.get("content", {}).items():
            for example in content.get("examples", {}).values():
                reply_validator(method, path, status, media_type).validate(example["value"])


def test_operations_have_short_names_for_generated_clients() -> None:
    ids = [operation["operationId"] for _, operation in OPERATIONS]
    assert len(ids) == len(set(ids))
    assert {"submit_groups", "take_batch", "atropos_get_batch", "atropos_run_get_batch"} <= set(ids)


def test_every_noun_is_described() -> None:
    used = {tag for _, operation in OPERATIONS for tag in operation["tags"]}
    assert [tag["name"] for tag in OPENAPI["tags"]] == list(NOUNS)
    assert used == NOUNS.keys()


def test_the_document_names_all_credentials_that_the_service_accepts() -> None:
    schemes = OPENAPI["components"]["securitySchemes"]
    assert {(one["type"], one.get("scheme")) for one in schemes.values()} == {
        ("http", "bearer"),
        ("http", "basic"),
        ("mutualTLS", None),
    }
    assert OPENAPI["security"] == [*({name: []} for name in schemes), {}]


@pytest.mark.parametrize(
    "operation", [o for _, o in OPERATIONS if "requestBody" in o], ids=[n for n, o in OPERATIONS if "requestBody" in o]
)
def test_every_body_has_examples(operation: dict[str, Any]) -> None:
    schema = body_schema(operation)
    assert "examples" in schema or all("examples" in field for field in schema["properties"].values())


@pytest.mark.parametrize("name", [name for name, _ in OPERATIONS])
def test_operations_refuse_a_media_type_if_they_take_several(name: str) -> None:
    """The others read the body as JSON, whatever it is called."""
    operation = dict(OPERATIONS)[name]
    refusals = [answer["$ref"] for answer in operation["responses"].values() if "$ref" in answer]
    several = len(operation.get("requestBody", {}).get("content", ())) > 1
    assert any(errors.UnsupportedMediaType.code in refusal for refusal in refusals) == several


async def test_there_is_one_page_that_shows_the_document(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/docs")
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert (await client.get("/openapi.json")).json() == OPENAPI
    assert (await client.get("/redoc")).status_code == 404
