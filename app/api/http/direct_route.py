"""The shortest way to what is called thousands of times a second."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, request_response
from starlette.types import ASGIApp, Receive, Scope, Send


class DirectRoute(APIRoute):
    """A route whose endpoint gets the request and nothing else.

    FastAPI's resolving of dependencies would be a tenth of their cost, its contexts for them a fiftieth.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.answer = self.get_route_handler()
        self.app = request_response(self.answer)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


class Shortcut:
    """ASGI middleware that takes requests for some routes straight to them, and all others to the router.

    The router has these routes too: it documents them, and tells who comes with another method which there are.
    """

    def __init__(self, routes: Sequence[BaseRoute], app: ASGIApp) -> None:
        self._routes = [route for route in routes if isinstance(route, DirectRoute)]
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for route in self._routes:
            match = route.path_regex.match(scope["path"])
            if match and scope["method"] in (route.methods or ()):
                scope["route"], scope["path_params"] = route, match.groupdict()
                reply = await route.answer(Request(scope, receive, send))
                await reply(scope, receive, send)
                return
        await self._app(scope, receive, send)
