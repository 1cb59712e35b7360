"""The reference pages of the HTTP API, from its OpenAPI document: an index by noun, and a page for each noun."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from app.api.http.openapi import ATROPOS_IN_A_RUN, TAGS
from app.main import create_app
from app.settings import ServiceSettings
from tools.pages import heading

Json = dict[str, Any]

NOUNS = {name: name.capitalize() for name in TAGS} | {"replay": "Replay buffers", "shards": "Dataset shards"}
_SOURCE = "the routes in `app/api/routes`"


@cache
def _document() -> Json:
    return create_app(ServiceSettings()).openapi()


def index_page() -> str:
    """Return the page with one table for each noun."""
    return _index(list(_operations(_document())))


def noun_page(noun: str) -> str:
    """Return the page of a noun: its operations with parameters, bodies and replies."""
    document = _document()
    return _page(document, noun, [one for one in _operations(document) if one[2]["tags"] == [noun]])


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Yield method, path and operation; the paths of Atropos only once, at the root."""
    for path, methods in document["paths"].items():
        if not path.startswith(ATROPOS_IN_A_RUN):
            for method, operation in methods.items():
                yield method.upper(), path, operation


def _index(operations: list[tuple[str, str, Json]]) -> str:
    parts = [
        heading("HTTP API", _SOURCE),
        "One table for each noun. The pages of the nouns have parameters, bodies and replies.",
        "[Use the HTTP API](../how-to/http-api.md) explains how they work together.",
        "On a service with tokens, each endpoint needs one of the [roles](../security.md#roles) that its page names.",
        "`docs/openapi.json` is the same as an OpenAPI document, and `/docs` of a running service shows it.\n",
    ]
    for noun, title in NOUNS.items():
        parts += [f"## {title}\n", f"[All fields](http/{noun}.md)\n", "| endpoint | what it does |", "|---|---|"]
        for method, path, operation in operations:
            if operation["tags"] == [noun]:
                parts.append(f"| `{method} {path}` | {_cell(operation['summary'])} |")
        parts.append("")
    parts += [
        "The paths of Atropos exist at the root for the run `default`,",
        "and below `/runs/{run}/atropos` for every other run.",
        "",
    ]
    return "\n".join(parts)


def _page(document: Json, noun: str, operations: list[tuple[str, str, Json]]) -> str:
    parts = [heading(NOUNS[noun], _SOURCE)]
    for method, path, operation in operations:
        parts += [f"## {operation['summary']}\n", f"`{method} {path}`\n", _paragraphs(operation["description"])]
        if parameters := [one for one in operation.get("parameters", []) if one["in"] == "query"]:
            parts += ["\nQuery:\n", "| name | type | default | meaning |", "|---|---|---|---|"]
            for one in parameters:
                schema = one.get("schema", {})
                meaning = one.get("description") or schema.get("description", "")
                parts.append(_row(f"`{one['name']}`", _type(document, schema), _default(schema, one), meaning))
        parts += _fields(document, "Body", operation.get("requestBody", {}))
        for status, reply in operation["responses"].items():
            if status.startswith("2"):
                parts += _fields(document, f"Reply {status}", reply)
        refused = [status for status in operation["responses"] if not status.startswith("2")]
        if refused:
            parts.append(f"\n[Errors](../errors.md): {', '.join(sorted(refused))}.")
        parts.append("")
    return "\n".join(parts)


def _fields(document: Json, title: str, content: Json) -> list[str]:
    """Return a table of the fields of a JSON body, or nothing if it has none."""
    schema = content.get("content", {}).get("application/json", {}).get("schema", {})
    alternatives = [_resolved(document, one) for one in [schema, *schema.get("anyOf", []), *schema.get("oneOf", [])]]
    rows = []
    for one in alternatives:
        required = set(one.get("required", []))
        for name, field in one.get("properties", {}).items():
            default = "required" if name in required and title == "Body" else _default(field, {})
            rows.append((name, field, default))
    if not rows:
        return []
    body = title == "Body"
    head = (
        ["| field | type | default | meaning |", "|---|---|---|---|"]
        if body
        else ["| field | type | meaning |", "|---|---|---|"]
    )
    table = []
    for name, field, default in rows:
        cells = [f"`{name}`", _type(document, field), *([default] if body else []), _meaning(document, field)]
        if (row := _row(*cells)) not in table:
            table.append(row)
    return [f"\n{title}:\n", *head, *table]


def _meaning(document: Json, field: Json) -> str:
    return field.get("description") or _resolved(document, field).get("description", "").partition("\n")[0]


def _resolved(document: Json, schema: Json) -> Json:
    """Follow a reference into the components of the document."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _type(document: Json, schema: Json) -> str:
    """Return a schema's type in a few words, such as ``list of int or null``."""
    if "$ref" in schema:
        resolved = _resolved(document, schema)
        return _type(document, resolved) if "enum" in resolved else schema["$ref"].rpartition("/")[2]
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(document, one) for one in schema[several]))
    if schema.get("type") == "array":
        return f"list of {_type(document, schema.get('items', {}))}"
    if schema.get("type") == "object":
        return "object"
    return {"integer": "int", "number": "float", "boolean": "bool"}.get(
        schema.get("type", ""), schema.get("type", "any")
    )


def _default(schema: Json, parameter: Json) -> str:
    if parameter.get("required"):
        return "required"
    value = schema.get("default")
    return "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _row(*cells: str) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    """Return a text as one line that a table can hold."""
    return " ".join(text.split()).replace("|", "\\|")


def _paragraphs(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
