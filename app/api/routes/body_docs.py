"""What OpenAPI says of every body and every problem, on both surfaces."""

from typing import Any

PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"description": "Not JSON, or not the compression it claims to be; nothing was stored."},
    408: {"description": "The body stopped arriving."},
    413: {"description": "The body is over the limit, as sent or once inflated."},
    415: {"description": "A Content-Encoding other than gzip."},
    422: {"description": "A value is wrong; `errors` names the place. Nothing was stored."},
    503: {"description": "Redis did not answer in time; ask again."},
    507: {"description": "Redis is out of memory; nothing was stored."},
}


def takes(model: type[Any], *, many: bool = False, required: bool = True) -> dict[str, Any]:
    """Describe a body that is read as bytes, for OpenAPI."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    content: dict[str, Any] = {"type": "array", "items": schema} if many else schema
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": content}}}}
