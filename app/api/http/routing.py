"""The classes of routes: routes without FastAPI's cost, routes that check their query, and routes inside a run."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import BaseRoute, request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.deps import MOST_SHOWN, unknown
from app.core import errors
from app.core.errors import InvalidField

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_MISSING_IN_A_RUN = (
    errors.ReplayNotFound,
    errors.FragmentNotFound,
    errors.SampleNotFound,
    errors.SnapshotNotFound,
    errors.CurriculumNotFound,
)


class DirectRoute(APIRoute):
    """A route whose endpoint gets the request and nothing else.

    FastAPI's resolving of dependencies would be a tenth of the cost of a submission.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.answer = self.get_route_handler()
        self.app = request_response(self.answer)

    def get_route_handler(self) -> Handler:
        """Return the endpoint itself."""
        handler: Handler = self.endpoint
        return handler


class Shortcut:
    """ASGI middleware that takes requests for some routes straight to them, and all others to the router.

    The router has these routes too. It documents them, and answers requests with another method.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = [route for route in routes if isinstance(route, DirectRoute)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for route in self._routes if scope["type"] == "http" else ():
            match = route.path_regex.match(scope["path"])
            if match and scope["method"] in (route.methods or ()):
                scope["route"], scope["path_params"] = route, match.groupdict()
                reply = await route.answer(Request(scope, receive, send))
                await reply(scope, receive, send)
                return
        await self._app(scope, receive, send)


class NativeRoute(APIRoute):
    """A route under ``/v1``: it refuses query parameters that it does not know, and duplicates."""

    def get_route_handler(self) -> Handler:
        """Return a handler that checks the query first."""
        handle = super().get_route_handler()
        known = frozenset(_query_names(self.dependant))

        async def checked(request: Request) -> Response:
            if request.scope["query_string"]:
                _check_query(request, known)
            return await handle(request)

        return checked


class DirectNativeRoute(NativeRoute, DirectRoute):
    """A route under ``/v1`` that is called thousands of times a second."""


class RunRoute(NativeRoute):
    """A route to something inside a run. It reports a missing run before anything else that is missing.

    It also refuses item keys that are not UTF-8.
    """

    def get_route_handler(self) -> Handler:
        """Return a handler that looks for the run once something inside it was not found."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if "key" in request.path_params:
                _check_encoding(request.scope["raw_path"])
            try:
                return await handle(request)
            except _MISSING_IN_A_RUN:
                await request.state.services.runs.administration.get(request.path_params["run"])
                raise

        return checked


class _Text(Convertor[str]):
    """The rest of a path, newlines included: Starlette's own `path` accepts none, and ignores one at the end."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("text", _Text())


def _check_query(request: Request, known: frozenset[str]) -> None:
    seen = set()
    for name, _ in request.query_params.multi_items():
        if name in seen:
            raise InvalidField("duplicate parameter", ("query", name[:MOST_SHOWN]))
        if name not in known:
            raise InvalidField(unknown(name, known), ("query", name[:MOST_SHOWN]))
        seen.add(name)


def _query_names(dependant: Dependant) -> set[str]:
    names = set()
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):  # its fields are the parameters
            names |= {of_model.alias or name for name, of_model in model.model_fields.items()}
        else:
            names.add(field.alias)
    return names.union(*map(_query_names, dependant.dependencies))


def _check_encoding(path: bytes) -> None:
    """Refuse a path that is not UTF-8. Decoded with replacement characters, it could equal another key."""
    try:
        unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise InvalidField("is not percent-encoded UTF-8", ("path", "key")) from None
