"""Routes of a run's curricula: where the run is missing, it is the run that is said to be missing."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import Path, Request, Response
from starlette.convertors import Convertor, register_url_convertor

from app.api.http.native_route import NativeRoute
from app.core.errors import CurriculumNotFound, InvalidField
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


class _Text(Convertor[str]):
    """The rest of a path, newlines included: Starlette's own `path` accepts none, and ignores one at the end."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("text", _Text())


class CurriculumRoute(NativeRoute):
    """A route that reports a missing run before a missing curriculum, and refuses keys that are not UTF-8."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Answer, or raise `RunNotFound` instead of what else there cannot be either."""
        handle = super().get_route_handler()

        async def looked_for(request: Request) -> Response:
            if "key" in request.path_params:
                _check_encoding(request.scope["raw_path"])
            try:
                return await handle(request)
            except CurriculumNotFound:
                await request.state.services.administration.get(request.path_params["run"])
                raise

        return looked_for


def _check_encoding(path: bytes) -> None:
    """Refuse a path that is not UTF-8: decoded with replacement characters, it could equal another key."""
    try:
        unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise InvalidField("is not percent-encoded UTF-8", ("path", "key")) from None
