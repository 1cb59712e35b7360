"""The classes of routes: routes without FastAPI's cost, routes that check their query, and routes inside a run."""

import re
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import BaseRoute, request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.codec.json_reader import unknown
from app.api.deps import MOST_SHOWN, Services
from app.api.http.access.audit import Handler, Wanted, audited
from app.api.http.access.control import identity_of, permit
from app.api.http.connection.connections import OPEN_CONNECTION, OpenConnection
from app.api.http.openapi import with_access
from app.api.http.rate_limits import count_request, count_request_in_outage
from app.api.http.tracing import traced
from app.core.access.permissions import AUDITED, Permission, in_a_run
from lachesis.wire import errors
from lachesis.wire.errors import InvalidField
from lachesis.wire.runs import DEFAULT_RUN

_PERMISSION = "lachesis_permission"
_AUDITED = "lachesis_audited"

_MISSING_IN_A_RUN = (
    errors.ReplayNotFound,
    errors.FragmentNotFound,
    errors.SampleNotFound,
    errors.SnapshotNotFound,
    errors.CurriculumNotFound,
)


E = TypeVar("E", bound=Callable[..., Any])


def requires(permission: Permission, *, audited: Wanted = False) -> Callable[[E], E]:
    """Declare the permission that a route needs, above its function.

    Args:
        permission: What the route needs.
        audited: Whether requests are in the audit trail even if their permission is not in `AUDITED`: `True`,
            `TOGETHER`, or a function that decides for a request.
    """

    def declare(endpoint: E) -> E:
        setattr(endpoint, _PERMISSION, permission)
        setattr(endpoint, _AUDITED, audited)
        return endpoint

    return declare


class GuardedRoute(APIRoute):
    """A route that checks its permission before anything else, also before it reads parameters.

    Attributes:
        permission: What the route needs.
        audited: Whether its requests are in the audit trail, or a function that says so of a request.

    Raises:
        TypeError: The endpoint declares no permission.
    """

    permission: Permission
    audited: Wanted

    def __init__(self, path: str, endpoint: Callable[..., Any], **kwargs: Any) -> None:
        if not hasattr(endpoint, _PERMISSION):
            raise TypeError(f"route {path} declares no permission: put @requires(...) above {endpoint.__name__}")
        self.permission = getattr(endpoint, _PERMISSION)
        changes = bool({"POST", "PUT", "PATCH", "DELETE"} & set(kwargs.get("methods") or ()))
        self.audited = getattr(endpoint, _AUDITED) or (changes and self.permission in AUDITED)
        super().__init__(path, endpoint, **kwargs)
        self.openapi_extra = {**(self.openapi_extra or {}), **with_access(self.description, self.permission)}

    def get_route_handler(self) -> Handler:
        """Return a handler that checks the permission, counts the connection and the request, and then answers."""
        answer, permission = traced(self.unguarded_handler(), self.endpoint), self.permission
        of_run = in_a_run(permission)
        if self.audited:
            answer = audited(answer, self.audited, self.name, in_a_run=of_run)
        is_open = permission is Permission.OPEN
        in_limits = of_run and permission is not Permission.OPERATE  # a used up limit can be raised
        count = count_request_in_outage if permission is Permission.METRICS else count_request

        async def guarded(request: Request) -> Response:
            scope = request.scope
            permit(scope, permission, of_run=of_run)
            if not is_open:
                services: Services = scope["state"]["services"]
                run = scope["path_params"].get("run", DEFAULT_RUN) if in_limits else None
                connection: OpenConnection | None = scope.get(OPEN_CONNECTION)
                if run is not None and connection is not None and run != connection.run:
                    connection.enter_run(run, services.access.rate_limits.max_connections(run))
                meter = services.access.rate_limits.meter(identity_of(scope), run)
                if meter is not None:
                    await count(scope, meter, services.settings.max_body_bytes)
            return await answer(request)

        return guarded

    def unguarded_handler(self) -> Handler:
        """Return FastAPI's handler. Other classes of routes replace it."""
        return super().get_route_handler()


class DirectRoute(GuardedRoute):
    """A route whose endpoint gets the request and nothing else.

    FastAPI's resolving of dependencies would be a tenth of the cost of a submission.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **kwargs: Any) -> None:
        super().__init__(path, endpoint, **kwargs)
        self.answer = self.get_route_handler()
        self.app = request_response(self.answer)

    def unguarded_handler(self) -> Handler:
        """Return the endpoint itself."""
        handler: Handler = self.endpoint
        return handler


class Shortcut:
    """ASGI middleware that takes requests for some routes straight to them, and all others to the router.

    The router has these routes too. It documents them, and answers requests with another method.

    Attributes:
        paths: The paths of the routes.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self.paths: set[str] = set()
        self._routes: defaultdict[str, list[tuple[re.Pattern[str], DirectRoute]]] = defaultdict(list)
        for context in iter_route_contexts(routes):  # an included router is one route, which has others inside
            if isinstance(route := context.original_route, DirectRoute):
                self.paths.add(context.path or "")
                for method in route.methods or ():
                    self._routes[method].append((context.path_regex, route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for path, route in self._routes.get(scope["method"], ()) if scope["type"] == "http" else ():
            if match := path.match(scope["path"]):
                scope["route"], scope["path_params"] = route, match.groupdict()
                reply = await route.answer(Request(scope, receive, send))
                await reply(scope, receive, send)
                return
        await self._app(scope, receive, send)


class NativeRoute(GuardedRoute):
    """A route under ``/v1``: it refuses query parameters that it does not know, and duplicates."""

    def unguarded_handler(self) -> Handler:
        """Return a handler that checks the query first."""
        handle = super().unguarded_handler()
        known = frozenset(_query_names(self.dependant))

        def checked(request: Request) -> Coroutine[Any, Any, Response]:
            if request.scope["query_string"]:
                _check_query(request, known)
            return handle(request)

        return checked


class DirectNativeRoute(NativeRoute, DirectRoute):
    """A route under ``/v1`` that is called often."""


class RunRoute(NativeRoute):
    """A route to something inside a run. It reports a missing run before anything else that is missing.

    It also refuses item keys that are not UTF-8.
    """

    def unguarded_handler(self) -> Handler:
        """Return a handler that looks for the run once something inside it was not found."""
        handle = super().unguarded_handler()

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
