"""Routes of a run's curricula: where the run is missing, it is the run that is said to be missing."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Path, Request, Response

from app.api.native_route import NativeRoute
from app.core.errors import CurriculumNotFound
from lachesis.wire.curricula import CURRICULUM_NAME
from lachesis.wire.curriculum_items import MAX_KEY

Named = Annotated[str, Path(pattern=f"^{CURRICULUM_NAME}$", description="The curriculum's name.", examples=["gsm8k"])]
Key = Annotated[
    str,
    Path(
        min_length=1, max_length=MAX_KEY, description="The item's key, percent-encoded; slashes may stand as they are."
    ),
]
SampleName = Annotated[str, Path(pattern="^[0-9a-f]{1,32}$", description="The sample's id.")]


class CurriculumRoute(NativeRoute):
    """A route that looks for the run once a curriculum of it was not found."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Answer, or raise `RunNotFound` instead of what else there cannot be either."""
        handle = super().get_route_handler()

        async def looked_for(request: Request) -> Response:
            try:
                return await handle(request)
            except CurriculumNotFound:
                await request.state.services.administration.get(request.path_params["run"])
                raise

        return looked_for
