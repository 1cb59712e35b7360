"""Count every request and its duration."""

from collections.abc import Awaitable
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.deps import Services
from app.api.http.caller import note_caller

_NO_ROUTE = "none"
_UNANSWERED = "none"  # the client left first, or the server is about to end


class RequestMetrics:
    """ASGI middleware that counts requests by route. A route with several prefixes counts as one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = perf_counter()
        note_caller(scope)
        status = 0

        def watched(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            return send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path_format", _NO_ROUTE)
            answered = str(status) if status else _UNANSWERED
            services: Services = scope["state"]["services"]
            services.requests.note(scope["method"], route, answered, perf_counter() - began_s)
