"""The OpenAPI document: what routes declare about responses, bodies and access, and the application that builds it."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from app.api.http.problem_json import PROBLEM_JSON
from app.core.access.permissions import Permission, holders
from lachesis.wire import errors
from lachesis.wire.groups import SAFETENSORS
from lachesis.wire.problems import Problem, meaning

ErrorClass = type[errors.ServiceError]
Responses = dict[int | str, dict[str, Any]]

ACCESS_ERRORS = (
    errors.Unauthorized,
    errors.PermissionDenied,
    errors.ClosedByDefault,
    errors.IssuerUnavailable,
    errors.HeadersTooLarge,
    errors.CrossSiteRequest,
    errors.ForeignHost,
    errors.RateLimited,
    errors.StoreUnavailable,
    errors.StoreRefused,
)
"""Errors of every operation that needs an identity, before its route."""

_ANY = (*ACCESS_ERRORS, errors.TooManyConflicts, errors.UnreadableRecord)
BODY_ERRORS = (
    errors.MalformedBody,
    errors.RequestTimeout,
    errors.BodyTooLarge,
    errors.UnsupportedEncoding,
    errors.ServiceStopping,
)
"""Errors of every operation that takes a body."""

_MODELS_BY_REFERENCE: set[type[Any]] = {Problem}
"""Models that FastAPI does not see: those that no route takes as a parameter or returns."""


# Responses


def problem_responses(*raised: ErrorClass) -> Responses:
    """Describe these errors by status, and the status of a bug."""
    by_status: defaultdict[int, dict[str, ErrorClass]] = defaultdict(dict)
    classes: list[ErrorClass] = [*sorted(raised, key=lambda cls: cls.code), errors.InternalError]
    for cls in classes:
        by_status[cls.status][cls.code] = cls
    return {status: _problem(by_code) for status, by_code in sorted(by_status.items())}


def read_responses(*raised: ErrorClass) -> Responses:
    """Describe the errors of an operation that only reads: the common ones, and ``raised``."""
    return problem_responses(errors.InvalidField, *_ANY, *raised)


def write_responses(*raised: ErrorClass) -> Responses:
    """Describe the errors of an operation that writes and takes no body."""
    return read_responses(errors.StoreFull, *raised)


def body_responses(*raised: ErrorClass) -> Responses:
    """Describe the errors of an operation that takes a body."""
    return write_responses(*BODY_ERRORS, *raised)


def response_headers(status: int, **meanings: str) -> Responses:
    """Describe the headers of a response. Names have underscores for dashes."""
    return {status: {"headers": {name.replace("_", "-"): _header(meaning) for name, meaning in meanings.items()}}}


def response_examples(**examples: Any) -> Responses:
    """Show examples of a 200 response in JSON, by name of the case."""
    named = {name: {"summary": name.replace("_", " "), "value": value} for name, value in examples.items()}
    return {200: {"content": {"application/json": {"examples": named}}}}


def _header(meaning: str) -> dict[str, Any]:
    return {"description": meaning, "schema": {"type": "string"}}


def _problem(by_code: dict[str, ErrorClass]) -> dict[str, Any]:
    codes = {"properties": {"code": {"enum": list(by_code)}}}
    response: dict[str, Any] = {
        "description": "\n".join(f"`{code}`: {meaning(cls)}" for code, cls in by_code.items()),
        "content": {PROBLEM_JSON: {"schema": {"allOf": [{"$ref": "#/components/schemas/Problem"}, codes]}}},
    }
    if any(cls.retry_after_s is not None for cls in by_code.values()):
        response["headers"] = {"Retry-After": _header("Seconds after which to try again.")}
    return response


# Bodies


def json_body(model: type[Any], *, many: bool = False, required: bool = True) -> dict[str, Any]:
    """Describe a JSON body that the route reads as bytes."""
    schema = _reference(model)
    content: dict[str, Any] = {"type": "array", "items": schema} if many else schema
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": content}}}}


def binary(description: str) -> dict[str, Any]:
    """Describe binary content in safetensors."""
    return {SAFETENSORS: {"schema": {"type": "string", "format": "binary", "description": description}}}


def json_or_binary_body(*forms: type[Any], description: str) -> dict[str, Any]:
    """Describe a body in safetensors, or in one of several forms of JSON."""
    in_json = {"anyOf": [_reference(form) for form in forms]}
    content = {"application/json": {"schema": in_json}, **binary(description)}
    return {"requestBody": {"required": True, "content": content}}


def _reference(model: type[Any]) -> dict[str, str]:
    _MODELS_BY_REFERENCE.add(model)
    return {"$ref": f"#/components/schemas/{model.__name__}"}


# Access


CREDENTIALS = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token of the service, or a JWT of its issuer."},
    "password": {"type": "http", "scheme": "basic", "description": "The same as a password, with any user name."},
    "certificate": {"type": "mutualTLS", "description": "A client certificate."},
}
"""The credentials that a service accepts, as security schemes. A service without tokens asks for none."""


def with_access(description: str, permission: Permission) -> dict[str, Any]:
    """Describe an operation and who may call it."""
    if permission is Permission.OPEN:
        return {"description": f"{description}\n\nNeeds no credentials.", "security": []}
    return {"description": f"{description}\n\nNeeds {holders(permission)}."}


# The document


TAGS = {
    "runs": "Training runs: settings, status, policy version, checkpoints.",
    "environments": "Sources of groups: members, heartbeats, shares, credits.",
    "groups": "Scored groups of sequences: submit, list, read, delete.",
    "history": "Charts of a run over time.",
    "batches": "Batches and their leases, for trainers and ranks.",
    "replay": "Replay buffers: insert fragments, sample, set priorities.",
    "curricula": "Curricula: which items to try next, and how they went.",
    "shards": "Divide a dataset among readers.",
    "tokens": "Tokens and their limits.",
    "audit": "Who changed what.",
    "system": "Probes, version and metrics.",
    "atropos": "The protocol of Atropos.",
}
"""The nouns of operations, in the order of the documents."""


ATROPOS_IN_A_RUN = "/runs/{run}/atropos"
"""The prefix of the endpoints of Atropos for runs other than `default`."""


def operation_id(route: APIRoute) -> str:
    """Return the id of an operation. Generated clients name their functions after it."""
    if route.path_format.startswith(ATROPOS_IN_A_RUN):
        return f"atropos_run_{route.name}"
    return f"atropos_{route.name}" if "atropos" in route.tags else route.name


class DocumentedApp(FastAPI):
    """An application whose document is whole, and describes each problem once."""

    def openapi(self) -> dict[str, Any]:
        """Build the document, once."""
        if self.openapi_schema is None:
            document = super().openapi()
            components = document["components"]
            components["schemas"] = _schemas() | components["schemas"]
            components["responses"] = _shared_problems(document["paths"])
            components["securitySchemes"] = CREDENTIALS
            document["security"] = [*({name: []} for name in CREDENTIALS), {}]
            document["tags"] = [{"name": name, "description": meaning} for name, meaning in TAGS.items()]
            _restore_examples(self.routes, document["paths"])
        return super().openapi()


def _schemas() -> dict[str, Any]:
    models = sorted(_MODELS_BY_REFERENCE, key=lambda model: model.__name__)
    asked = [(model, "validation") for model in models]
    _, found = models_json_schema(asked, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def _shared_problems(paths: dict[str, Any]) -> dict[str, Any]:
    """Replace the problems of operations by references. They would be most of the document."""
    problems = {}
    for operation in (operation for methods in paths.values() for operation in methods.values()):
        for status, response in operation["responses"].items():
            if PROBLEM_JSON in response.get("content", ()):
                _, codes = response["content"][PROBLEM_JSON]["schema"]["allOf"]
                name = ".".join(codes["properties"]["code"]["enum"])
                problems[name] = response
                operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
    return dict(sorted(problems.items()))


def _restore_examples(routes: Sequence[BaseRoute], paths: dict[str, Any]) -> None:
    """Put the examples of replies in again as routes have them. FastAPI leaves out what is null."""
    for context in iter_route_contexts(routes):
        route = context.original_route
        if isinstance(route, APIRoute) and (examples := _json_of(route.responses.get(200, {})).get("examples")):
            for method in route.methods or ():
                reply = paths[context.path or ""][method.lower()]["responses"]["200"]
                _json_of(reply)["examples"] = examples


def _json_of(response: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = response.get("content", {}).get("application/json", {})
    return described
