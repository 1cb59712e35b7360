"""The criteria of groups, as the query of a request gives them."""

from inspect import Parameter, Signature
from typing import Annotated, Any

from fastapi import Query

from lachesis.wire.criteria import GroupCriteria


def group_criteria(**given: Any) -> GroupCriteria:
    """Return the criteria of a query. A group must match every criterion that is given."""
    return GroupCriteria(**given)


group_criteria.__signature__ = Signature(  # type: ignore[attr-defined]
    [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[field.rebuild_annotation(), Query(description=field.description)],
        )
        for name, field in GroupCriteria.model_fields.items()
    ]
)
"""FastAPI reads the parameters of the query here: one for each criterion."""
