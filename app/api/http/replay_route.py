"""Routes of a run's replay buffer: where the run is missing, it is the run that is said to be missing."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response

from app.api.http.native_route import NativeRoute
from app.core.errors import FragmentNotFound, ReplayNotFound, SampleNotFound, SnapshotNotFound

_INSIDE = (ReplayNotFound, FragmentNotFound, SampleNotFound, SnapshotNotFound)


class ReplayRoute(NativeRoute):
    """A route that looks for the run once something in it was not found."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Answer, or raise `RunNotFound` instead of what else there cannot be either."""
        handle = super().get_route_handler()

        async def looked_for(request: Request) -> Response:
            try:
                return await handle(request)
            except _INSIDE:
                await request.state.services.administration.get(request.path_params["run"])
                raise

        return looked_for
