"""What the schemas of requests have in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema

MAX_INTEGER = 2**53 - 1
"""Largest integer that is taken: those beyond it change in readers that take numbers as doubles."""


class Body(BaseModel):
    """A body under ``/v1``. Unknown fields are refused: a misspelt one must not be passed over."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")


class Change(Body):
    """A body that changes only what it names. Its fields may be left out, but what they default to means nothing."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Show no defaults: a reader would take a field that is left out for one that is set."""
        shown = handler.resolve_ref_schema(handler(schema))
        for field in shown["properties"].values():
            field.pop("default", None)
        return shown
