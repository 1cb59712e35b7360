"""Count every request and its duration, and add the security headers to every answer."""

from collections.abc import Awaitable
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.deps import Services
from app.api.http.caller import note_caller
from app.api.http.security_headers import with_security_headers
from app.events import stored_by

_NO_ROUTE = "none"
_UNANSWERED = "none"  # the client left first, or the server is about to end


class RequestMetrics:
    """ASGI middleware that counts requests by route, and adds the security headers.

    A route with several prefixes counts as one. The headers are added here because it is the outermost middleware that
    sees the start of each answer anyway.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = perf_counter()
        services: Services = scope["state"]["services"]
        note_caller(scope)
        stored_by.set(services.events.recorder.record)
        status = 0

        def watched(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = with_security_headers(message["headers"])
            return send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path_format", _NO_ROUTE)
            answered = str(status) if status else _UNANSWERED
            services.requests.note(scope["method"], route, answered, perf_counter() - began_s)
