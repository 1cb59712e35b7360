"""Compare replies with the OpenAPI document, except those of the probes.

Every reply that a test of the API gets passes through `check_reply`, also those whose JSON is written by hand.
"""

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from jsonschema_rs import Draft202012Validator, Registry

from app.api.pages.operators import VERSION

OPENAPI: dict[str, Any] = json.loads((Path(__file__).parents[3] / "docs/openapi.json").read_text())
_DOCUMENT = "urn:openapi"
NAMED_HEADERS = ("lachesis-", "location", "idempotent-replay", "retry-after")
Operation = tuple[str, str]


def operations() -> Iterator[tuple[Operation, dict[str, Any]]]:
    """Every operation: its method and path, and what the document says of it."""
    for path, methods in OPENAPI["paths"].items():
        for method, operation in methods.items():
            yield (method.upper(), path), operation


PROBES = ("/healthz", "/readyz")
_CHECKED = {operation: described for operation, described in operations() if operation[1] not in PROBES}
OPERATIONS = {operation: described for operation, described in _CHECKED.items() if operation[1].startswith("/v1")}
_PATTERNS = [
    (operation, re.compile(re.sub(r"\{\w+\}", "[^/]+", operation[1].replace("{key}", "(?s:.*)"))))
    for operation in _CHECKED
]


def answers(operation: Operation) -> dict[str, dict[str, Any]]:
    """What an operation may answer, by status."""
    shared = OPENAPI["components"]["responses"]
    documented = _CHECKED[operation]["responses"]
    return {
        status: shared[answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer
        for status, answer in documented.items()
    }


def operation_of(method: str, path: str) -> Operation | None:
    """Find the operation that a request is of; where several match, the one that spells the path out."""
    found = [one for one, pattern in _PATTERNS if one[0] == method and pattern.fullmatch(path)]
    return min(found, key=lambda one: one[1].count("{"), default=None)


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference names; of several forms, the first."""
    if "anyOf" in schema:
        schema = schema["anyOf"][0]
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = OPENAPI["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def body_schema(operation: dict[str, Any]) -> dict[str, Any]:
    """The schema of the JSON body of an operation; of a list, that of its elements."""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return resolved(schema.get("items", schema))


def example_body(operation: dict[str, Any]) -> Any:
    """A body that the document gives as an example; None for operations without one."""
    if "requestBody" not in operation:
        return None
    schema = body_schema(operation)
    if "examples" in schema:
        return schema["examples"][0]
    return {name: field["examples"][0] for name, field in schema["properties"].items()}


def check_security_headers(reply: httpx.Response) -> None:
    """Check the headers that tell browsers and caches what they may do with an answer. Each is there once."""
    sources = ("script", "style", "img", "connect")
    policy = ["default-src 'none'", *(f"{source}-src 'self'" for source in sources)]
    policy += ["frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"]
    expected = {
        "content-security-policy": "; ".join(policy),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": _kept(reply),
    }
    assert {name: reply.headers.get(name) for name in expected} == expected


def _kept(reply: httpx.Response) -> str:
    if reply.is_success and reply.url.path.startswith("/docs/"):
        return "max-age=3600"
    if reply.is_success and reply.url.path.startswith(f"/pages/{VERSION}/"):
        return "max-age=31536000, immutable"
    return "no-store"


def check_reply(reply: httpx.Response) -> Operation | None:
    """Check status, headers, media type and body of a reply; returns the operation it is of, if it is of one."""
    check_security_headers(reply)
    path = reply.request.url.path
    operation = operation_of(reply.request.method, path)
    if operation is None:
        assert not path.startswith("/v1") or reply.status_code in (401, 403, 404, 405), f"{path} is not documented"
        return None
    documented = answers(operation)
    assert str(reply.status_code) in documented, f"{operation} may not answer {reply.status_code}: {reply.text}"
    answer = documented[str(reply.status_code)]
    headers = {name.lower() for name in answer.get("headers", {})}
    assert {name for name in reply.headers if name.startswith(NAMED_HEADERS)} <= headers, operation
    media_type = reply.headers.get("content-type")
    if media_type is None:
        assert "content" not in answer
        assert not reply.content
    elif media_type.endswith("json"):
        reply_validator(*operation, str(reply.status_code), media_type).validate(reply.json())
    else:
        assert media_type in answer["content"] or media_type.partition(";")[0] in answer["content"]
    return operation


@cache
def reply_validator(method: str, path: str, status: str, media_type: str) -> Draft202012Validator:
    schema = json.dumps(answers((method, path))[status]["content"][media_type]["schema"])
    return Draft202012Validator(json.loads(schema.replace('"#/', f'"{_DOCUMENT}#/')), registry=_strict())


@cache
def _strict() -> Registry:
    """The document's schemas, with every key refused that they do not name. All validators share them."""
    components: dict[str, Any] = copy.deepcopy(OPENAPI["components"])
    for schema in components["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return Registry([(_DOCUMENT, {"components": components})])
