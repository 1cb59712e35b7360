"""The application's OpenAPI document: what FastAPI derives from the routes, and what they only refer to by name."""

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from app.api.http.problem_json import MEDIA_TYPE
from lachesis.wire.curriculum_items import NewItem, Observation
from lachesis.wire.fragments import SubmittedFragment, SubmittedFragments
from lachesis.wire.groups import SubmittedGroup, SubmittedGroups
from lachesis.wire.problems import Problem
from lachesis.wire.shards import InlineEpisode

_BESIDE = (
    *(Problem, SubmittedGroup, SubmittedGroups, InlineEpisode, SubmittedFragment, SubmittedFragments),
    *(NewItem, Observation),
)


class DocumentedApp(FastAPI):
    """Adds the schemas that no route has as its model, and says of each problem once what it is."""

    def openapi(self) -> dict[str, Any]:
        """Build the document, once."""
        if self.openapi_schema is None:
            components = super().openapi()["components"]
            components["schemas"] = _schemas() | components["schemas"]
            components["responses"] = _problems(super().openapi()["paths"])
        return super().openapi()


def _schemas() -> dict[str, Any]:
    asked = [(model, "validation") for model in _BESIDE]
    _, found = models_json_schema(asked, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def _problems(paths: dict[str, Any]) -> dict[str, Any]:
    """Take the problems out of operations, where they outweigh the rest; return them by the codes they may have."""
    problems = {}
    for operation in (operation for methods in paths.values() for operation in methods.values()):
        for status, answer in operation["responses"].items():
            if MEDIA_TYPE in answer.get("content", ()):
                _, codes = answer["content"][MEDIA_TYPE]["schema"]["allOf"]
                name = ".".join(codes["properties"]["code"]["enum"])
                problems[name] = answer
                operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
    return dict(sorted(problems.items()))
