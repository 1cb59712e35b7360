"""States of curricula on the native API: saved and restored as streams."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from app.api.codec.curriculum_state import lines_of, read_atropos, read_lines
from app.api.deps import Found, NamedRun, SubmittedBody
from app.api.http.curriculum_route import CurriculumRoute, Named
from app.api.http.replies import model_reply
from app.api.routes import curriculum_docs as docs
from app.core.curriculum.indexes import Order
from app.core.errors import UnsupportedMediaType
from lachesis.wire.curricula import JSON_LINES, StateLoaded

router = APIRouter(
    prefix="/v1/runs/{run}/curricula/{curriculum}/state", tags=["curricula"], route_class=CurriculumRoute
)

_MAX_BYTES = 32 * 1024 * 1024  # of a document of Atropos, which is read whole


@router.get("", summary="Save a curriculum", responses=docs.SAVES, response_class=Response)
async def get_state(run: NamedRun, curriculum: Named, found: Found) -> Response:
    """Answer all of a curriculum: settings, generator, items with what is known of them. As a stream, of any size."""
    document = await found.curriculum_states.save(run, curriculum)
    return StreamingResponse(lines_of(document), media_type=JSON_LINES)


@router.put(
    "",
    summary="Restore a curriculum",
    response_model=StateLoaded,
    responses=docs.LOADS,
    openapi_extra=docs.TAKES_STATE,
)
async def put_state(run: NamedRun, curriculum: Named, found: Found, request: Request) -> Response:
    """Make a curriculum what a saved one was, or make one; it goes on with the same samples. All or nothing.

    As `application/json` it takes the state of Atropos's CurriculumScheduler.
    """
    media_type = request.headers.get("content-type", JSON_LINES).partition(";")[0].strip().lower()
    if media_type == "application/json":
        async with SubmittedBody(request, _MAX_BYTES) as (_, _, body):
            document = await found.decoder.beside(read_atropos, body)
    elif media_type == JSON_LINES:
        document = await read_lines(request, found.settings.body_timeout_s)
    else:
        raise UnsupportedMediaType(f"Content-Type {media_type[:80]!r}; states come as {JSON_LINES} or application/json")
    await found.curriculum_states.load(run, curriculum, document)
    counts = (await found.curricula.facts(run, curriculum)).census.counts
    items = counts.length(Order.EASE) + counts.length(Order.UNSEEN)
    return model_reply(StateLoaded(items=items, items_seen=counts.seen))
