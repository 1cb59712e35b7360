"""Routes under ``/v1``: a query parameter that is none of theirs, or comes twice, is refused, as in bodies."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.api.deps import MOST_SHOWN, unknown
from app.api.http.direct_route import DirectRoute
from app.core.errors import InvalidField


class NativeRoute(APIRoute):
    """A route that knows its query parameters, those of its dependencies among them, and takes no others.

    Each of them once: of two values, none would be the right one.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Check the query before anything else is done."""
        handle = super().get_route_handler()
        known = frozenset(_query_names(self.dependant))

        async def checked(request: Request) -> Response:
            if request.scope["query_string"]:
                said = set()
                for name, _ in request.query_params.multi_items():
                    if name not in known or name in said:
                        refusal = "is said twice" if name in said else unknown(name, known)
                        raise InvalidField(refusal, ("query", name[:MOST_SHOWN]))
                    said.add(name)
            return await handle(request)

        return checked


class DirectNativeRoute(NativeRoute, DirectRoute):
    """The same, for what is called thousands of times a second."""


def _query_names(dependant: Dependant) -> set[str]:
    names = set()
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):  # its fields are the parameters
            names |= {of_model.alias or name for name, of_model in model.model_fields.items()}
        else:
            names.add(field.alias)
    return names.union(*map(_query_names, dependant.dependencies))
