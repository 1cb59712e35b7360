"""Errors as RFC 9457 problem details: one table from error class to status."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.http.problem_json import MEDIA_TYPE, code_of, problem_json
from app.core import errors
from lachesis.wire.problems import format_validation_error

STATUS: dict[type[errors.LachesisError], int] = {
    errors.MalformedBody: 400,
    errors.RequestTimeout: 408,
    errors.BodyTooLarge: 413,
    errors.UnsupportedEncoding: 415,
    errors.UnsupportedMediaType: 415,
    errors.NotAcceptable: 406,
    errors.InvalidField: 422,
    errors.SequenceTooLong: 422,
    errors.InvalidDataset: 422,
    errors.InvalidInput: 422,
    errors.Forbidden: 403,
    errors.CrossSiteRequest: 403,
    errors.ForeignHost: 403,
    errors.NotFound: 404,
    errors.RunNotFound: 404,
    errors.EnvironmentNotFound: 404,
    errors.MemberNotFound: 404,
    errors.GroupNotFound: 404,
    errors.BatchNotFound: 404,
    errors.ReplayNotFound: 404,
    errors.FragmentNotFound: 404,
    errors.SampleNotFound: 404,
    errors.SnapshotNotFound: 404,
    errors.CurriculumNotFound: 404,
    errors.ItemNotFound: 404,
    errors.DatasetNotFound: 404,
    errors.Conflict: 409,
    errors.RunExists: 409,
    errors.EnvironmentSettingsDiffer: 409,
    errors.RunArchived: 409,
    errors.GroupExists: 409,
    errors.GroupNotWaiting: 409,
    errors.FragmentExists: 409,
    errors.LeaseLost: 409,
    errors.NotAnAtroposRun: 409,
    errors.BatchInUse: 409,
    errors.RunInUse: 409,
    errors.RewindImpossible: 409,
    errors.RunRewound: 409,
    errors.RanksDisagree: 409,
    errors.StepMismatch: 409,
    errors.QueueFull: 429,
    errors.ReplayBlocked: 429,
    errors.StoreUnavailable: 503,
    errors.StoreMisconfigured: 503,
    errors.StoreFull: 507,
    errors.StoreRefused: 500,
    errors.UnreadableRecord: 500,
}
_MOST_PATH = 200  # characters of a path that are said back
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
RETRY_AFTER_S = {503: "2", 507: "10"}
"""When to ask again, by status."""

log = logging.getLogger("lachesis.api")


def status_of(error: errors.LachesisError) -> int:
    """Return the HTTP status of an error: that of its class, or of the nearest class above it."""
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def problem(
    status: int, code: str, detail: str, problems: Sequence[dict[str, Any]] = (), headers: dict[str, str] | None = None
) -> Response:
    """Build a problem reply. ``problems`` lists wrong values: ``loc`` (path from the body's root) and ``msg``."""
    extra = dict(headers or {})
    if status in RETRY_AFTER_S:
        extra["Retry-After"] = RETRY_AFTER_S[status]
    return Response(problem_json(status, code, detail, problems), status, extra, MEDIA_TYPE)


def place(location: Sequence[str | int]) -> str:
    """Write a location as people do: ``tokens[3][17]``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def _on_lachesis_error(_: Request, error: errors.LachesisError) -> Response:
    location = getattr(error, "location", ())
    listed = [{"loc": list(location), "msg": str(error)}] if location else []
    detail = f"{place(location)}: {error}" if location else str(error)
    # A body that was refused while it arrives is not read to its end, so the connection cannot be used again.
    closing = isinstance(error, (errors.BodyTooLarge, errors.RequestTimeout, errors.UnsupportedEncoding))
    headers = {"Connection": "close"} if closing else {}
    if isinstance(error, errors.QueueFull):
        headers["Retry-After"] = str(max(1, ceil(error.retry_after_s)))
    return problem(status_of(error), error.code, detail, listed, headers)


def _on_validation_error(_: Request, error: RequestValidationError) -> Response:
    listed = [{"loc": list(item["loc"]), "msg": format_validation_error(item)} for item in error.errors()]
    first = listed[0]
    return problem(422, errors.InvalidField.code, f"{place(first['loc'])}: {first['msg']}", listed)


def _on_http_exception(request: Request, error: HTTPException) -> Response:
    headers, detail, path = dict(error.headers or {}), str(error.detail), request.url.path[:_MOST_PATH]
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"nothing is at {path}; /docs lists every endpoint"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed(request))
        detail = f"{path} takes {headers['Allow']}, not {request.method}"
    return problem(error.status_code, code_of(error.status_code), detail, headers=headers)


def _allowed(request: Request) -> list[str]:
    """The methods of all routes of a path; the framework names those of the first."""
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    ]


def _on_disconnect(_: Request, __: Exception) -> Response:
    return problem(400, errors.MalformedBody.code, "the connection was lost before the body had arrived")


def _on_bug(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, "internal_error", "this is a bug of ours; the server's log has the details")


_ANSWERS: dict[type[Exception], Callable[[Request, Any], Response]] = {
    errors.LachesisError: _on_lachesis_error,
    RequestValidationError: _on_validation_error,
    HTTPException: _on_http_exception,
    ClientDisconnect: _on_disconnect,
    Exception: _on_bug,
}


async def framework_error(request: Request, error: Exception) -> Response:
    """Answer an error of the framework, such as an unknown path, as a problem. FastAPI calls this."""
    answer = _on_http_exception if isinstance(error, HTTPException) else _on_validation_error
    return answer(request, error)  # type: ignore[arg-type]


FRAMEWORK_ERRORS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    HTTPException: framework_error,
    RequestValidationError: framework_error,
}
"""What FastAPI would otherwise answer in a form of its own."""


class Problems:
    """ASGI middleware: answers every error as a problem. What nobody foresaw is also raised, for the server to know."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        def watched(message: Message) -> Awaitable[None]:
            nonlocal started
            started = True
            return send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            answer = _on_bug if started else next(_ANSWERS[cls] for cls in type(error).__mro__ if cls in _ANSWERS)
            reply = answer(Request(scope, receive), error)
            if not started:
                await reply(scope, receive, send)
            if answer is _on_bug:
                raise
