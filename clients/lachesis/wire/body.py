"""What the schemas of requests have in common, and the largest integer in them."""

from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationInfo, field_validator
from pydantic_core import CoreSchema

MAX_INTEGER = 2**53 - 1
"""Largest accepted integer. Readers that use doubles would change a larger one."""


class Body(BaseModel):
    """A body under ``/v1``. It refuses unknown fields, so that a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_boolean(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false for a number: Python would accept them as 1 and 0."""
        if isinstance(value, bool) and _takes_number(cls, info.field_name or ""):
            raise ValueError(f"should be a number, not {'true' if value else 'false'}")
        return value


@cache
def _takes_number(body: type[BaseModel], field: str) -> bool:
    """Return whether a field takes a number, by itself or as an alternative to null or text."""
    annotation = body.model_fields[field].annotation
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return any((get_args(one)[0] if get_origin(one) is Annotated else one) in (int, float) for one in members)


class Change(Body):
    """A body that changes only the fields that it names. The defaults of its fields mean nothing."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema without defaults: a field that is left out stays as it is, and gets no default."""
        shown = handler.resolve_ref_schema(handler(schema))
        for field in shown["properties"].values():
            field.pop("default", None)
        return shown
