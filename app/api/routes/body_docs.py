"""What OpenAPI says of bodies."""

from typing import Any


def takes(model: type[Any], *, many: bool = False, required: bool = True) -> dict[str, Any]:
    """Describe a body that is read as bytes, for OpenAPI."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    content: dict[str, Any] = {"type": "array", "items": schema} if many else schema
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": content}}}}
