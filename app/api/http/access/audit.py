"""Add a request that changes something for others to the audit trail."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal
from urllib.parse import quote

from fastapi import Request, Response
from starlette.types import Scope

from app.api.deps import Services
from app.api.http.caller import counted_sender, described_caller
from app.api.http.problems import as_service_error
from app.services.access.audit import RequestKind
from lachesis.wire.runs import DEFAULT_RUN

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
TOGETHER: Final = "together"
"""Recorded, but those of a sender in an hour are one entry: a trainer sends them all the time."""

Wanted = bool | Literal["together"] | Callable[[Request], bool]


def audited(answer: Handler, wanted: Wanted, action: str, *, in_a_run: bool) -> Handler:
    """Return a handler that answers and then records the request, with what it changed and its result.

    Args:
        answer: Answers the request.
        wanted: Whether the request is recorded; True for each. `TOGETHER`: those of a sender are one entry.
        action: A word for all requests of the route.
        in_a_run: Whether the route is about one run.
    """

    async def recorded(request: Request) -> Response:
        if callable(wanted) and not wanted(request):
            return await answer(request)
        scope = request.scope
        services: Services = scope["state"]["services"]
        run = request.path_params.get("run", DEFAULT_RUN) if in_a_run else None
        who = described_caller(scope)
        who["kind"] = who.pop("identified_by", "open")
        trail, path = services.access.audit, _as_sent(scope)
        kind = RequestKind(counted_sender(scope), action, together=wanted == TOGETHER)
        async with trail.entry(who, request.method, path, run, kind) as result:
            try:
                reply = await answer(request)
            except Exception as error:
                known = as_service_error(error)
                if known is not None:
                    result.status, result.code = known.status, known.code
                raise
            result.status = reply.status_code
            return reply

    return recorded


def _as_sent(scope: Scope) -> str:
    """Return the path and the query of a request, not decoded."""
    path, query = scope.get("raw_path") or quote(scope["path"]).encode(), scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")
