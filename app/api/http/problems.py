"""Errors as RFC 9457 problem details. `lachesis.wire.errors` defines the code, status and remedy of each."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.http.access.refusals import Refusals
from app.api.http.caller import MOST_SHOWN, described_caller, shown_path
from app.api.http.connection.client_connection import connection_of
from app.api.http.problem_json import PROBLEM_JSON, problem_json, retry_after
from app.logs import LogBackoff
from lachesis.wire import errors
from lachesis.wire.problems import format_validation_error, wrong_value

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="lachesis", Basic realm="lachesis", charset="UTF-8"'}
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

# The rest of a refused body is not read, so the connection cannot be used again. One too many must go.
_CLOSING = (errors.BodyTooLarge, errors.RequestTimeout, errors.UnsupportedEncoding, errors.TooManyConnections)

log = logging.getLogger("lachesis.api")


def as_service_error(error: Exception) -> errors.ServiceError | None:
    """Return what an exception of a request means to its sender; None for a bug."""
    if isinstance(error, RequestValidationError):
        found = error.errors()
        refused = errors.InvalidField(format_validation_error(found[0]), found[0]["loc"])
        refused.errors = tuple(wrong_value(format_validation_error(item), item["loc"]) for item in found)
        return refused
    if isinstance(error, ClientDisconnect):
        return errors.MalformedBody("the connection was lost before the body arrived")
    return error if isinstance(error, errors.ServiceError) else None


def problem(error: errors.ServiceError, headers: Mapping[str, str] | None = None) -> Response:
    """Build the reply for an error."""
    extra = dict(headers or {})
    if (seconds := retry_after(error)) is not None:
        extra["Retry-After"] = seconds
    return Response(problem_json(error), error.status, extra, PROBLEM_JSON)


def _on_service_error(error: errors.ServiceError) -> Response:
    if isinstance(error, errors.Unauthorized):
        return problem(error, CHALLENGE)
    return problem(error, {"Connection": "close"} if isinstance(error, _CLOSING) else None)


def _on_http_exception(request: Request, error: HTTPException) -> Response:
    path = request.url.path[:MOST_SHOWN]
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem(errors.NotFound(f"there is no endpoint {path}"))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_allowed(request))
        return problem(errors.MethodNotAllowed(f"{path} takes {allowed}, not {request.method}"), {"Allow": allowed})
    return problem(errors.BadRequest(str(error.detail)), error.headers)


def _allowed(request: Request) -> list[str]:
    """Return the methods of all routes of a path. The framework names those of the first route only."""
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    ]


def _answer(request: Request, error: Exception) -> Response | None:
    """Return the reply for an error; None for a bug."""
    if isinstance(error, HTTPException):
        return _on_http_exception(request, error)
    refused = as_service_error(error)
    return None if refused is None else _on_service_error(refused)


def _on_bug(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(errors.InternalError("the service failed on this request"))


async def _pass_on(_: Request, error: Exception) -> Response:
    raise error


FRAMEWORK_ERRORS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    HTTPException: _pass_on,
    RequestValidationError: _pass_on,
    Exception: _pass_on,
}
"""Errors that FastAPI would answer in a form of its own. It passes them on to `Problems`."""


class Problems:
    """ASGI middleware that answers every error as a problem. An unexpected error is also raised to the server.

    Args:
        app: The application.
        refusals: Holds back refusals of senders that get many.
    """

    def __init__(self, app: ASGIApp, refusals: Refusals) -> None:
        self._app = app
        self._refusals = refusals
        self._failures = LogBackoff()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        def watched(message: Message) -> Awaitable[None]:
            nonlocal started
            held_back = not started and 400 <= message["status"] < 500
            started = True
            return self._send_late(scope, message, send) if held_back else send(message)

        try:
            await self._app(scope, receive, watched)
            return
        except Exception as error:
            if started and isinstance(error, errors.ServiceError) and self._broke_off(scope, error):
                return
            request = Request(scope, receive)
            reply = None if started else _answer(request, error)
            if reply is None:
                bug = _on_bug(request, error)
                if not started:
                    await bug(scope, receive, watched)
                raise
            if isinstance(error, errors.StoreRefused | errors.UnreadableRecord):
                self._log(scope, error, "request failed", logging.ERROR)
            error.__traceback__ = None  # its frames hold all of the request, and FastAPI's hold the error
        await reply(scope, receive, watched)  # it may wait

    def _broke_off(self, scope: Scope, error: errors.ServiceError) -> bool:
        """End the connection, so that the sender sees that the reply is not whole. False: the server must do it."""
        connection = connection_of(scope)
        if connection is None:
            return False
        self._log(scope, error, "reply broken off", logging.WARNING)
        connection.give_up()
        error.__traceback__ = None
        return True

    def _log(self, scope: Scope, failure: errors.ServiceError, what: str, level: int) -> None:
        if self._failures.is_due((what, failure.code)):
            request = {"method": scope["method"], "path": shown_path(scope), "reason": failure.detail}
            log.log(level, what, extra={"fields": request | described_caller(scope)})

    async def _send_late(self, scope: Scope, message: Message, send: Send) -> None:
        await self._refusals.throttle(scope)
        await send(message)
