"""The replay buffer of a run on the native API: set up, looked at, changed, emptied."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from app.api.deps import Found, NamedRun, SmallBody, parse
from app.api.http.replay_route import ReplayRoute
from app.api.http.replies import large_json_reply, model_reply
from app.api.routes import replay_docs as docs
from app.api.routes.body_docs import takes
from app.api.wire.replay import changes_of, shown_chunks, shown_state
from app.core.errors import InvalidField
from app.services.replay.buffer import SortedBy
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.replay import (
    Chunks,
    ChunksDeleted,
    Priorities,
    PrioritiesSet,
    RateLimiter,
    ReplayChange,
    ReplaySettings,
    ReplayState,
    SessionBegun,
    SessionSet,
)

router = APIRouter(prefix="/v1/runs/{run}/replay", tags=["replay"], route_class=ReplayRoute)

_Whole = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]
SortBy = Annotated[
    SortedBy | None,
    Query(
        description="By order of insertion, weight, version or uses. What is `withheld` is sorted by version, what is "
        "`past` by order of insertion, and what was retired and is in samples still by nothing."
    ),
]
OfWorker = Annotated[str | None, Query(max_length=128, description="Only those of this worker.")]
OfVersion = Annotated[_Whole, Query(description="Only those of this policy version.")]
OfSession = Annotated[_Whole, Query(description="Only those of this session.")]


@router.put(
    "", summary="Set up a buffer", response_model=ReplayState, responses=docs.MAKES, openapi_extra=takes(ReplaySettings)
)
async def put_replay(
    run: NamedRun,
    found: Found,
    body: SmallBody,
    *,
    if_absent: Annotated[bool, Query(description="One that is there stays as it is, and is answered.")] = False,
) -> Response:
    """Give the run a replay buffer with these settings, or set all of them where it has one; what is there stays."""
    asked = parse(ReplaySettings, body)
    changes = changes_of(asked, frozenset(ReplaySettings.model_fields))
    return await _configured(found, run, changes, keep=if_absent)


@router.patch(
    "", summary="Change a buffer", response_model=ReplayState, responses=docs.SENDS, openapi_extra=takes(ReplayChange)
)
async def change_replay(run: NamedRun, found: Found, body: SmallBody) -> Response:
    """Change a buffer while it goes on: what the body names."""
    asked = parse(ReplayChange, body)
    await found.replay.state(run)
    return await _configured(found, run, changes_of(asked, frozenset(asked.model_fields_set)))


@router.get("", summary="How a buffer is doing", response_model=ReplayState, responses=docs.READS)
async def get_replay(run: NamedRun, found: Found, request: Request) -> Response:
    """Answer settings, sizes, histograms, what blocks whom, and who sends what."""
    state = shown_state(await found.replay.state(run))
    return await large_json_reply(request, state.model_dump_json().encode())


@router.delete("", summary="Remove a buffer", status_code=204, responses=docs.WRITES)
async def delete_replay(run: NamedRun, found: Found) -> Response:
    """Remove the buffer with its settings, all it holds, and its snapshots. The run goes on; samples have ended."""
    await found.replay_snapshots.delete_buffer(run)
    return Response(status_code=204)


@router.put(
    "/session",
    summary="Begin a session",
    response_model=SessionSet,
    responses=docs.SENDS,
    openapi_extra=takes(SessionBegun),
)
async def put_session(run: NamedRun, found: Found, body: SmallBody) -> Response:
    """Begin a training attempt: chunks of former ones are retired, and kept for inspection until they are evicted."""
    session = parse(SessionBegun, body).session
    return model_reply(SessionSet(session=session, retired_chunks=await found.replay.set_session(run, session)))


@router.patch(
    "/priorities",
    summary="Set priorities",
    response_model=PrioritiesSet,
    responses=docs.SENDS,
    openapi_extra=takes(Priorities),
)
async def patch_priorities(run: NamedRun, found: Found, body: SmallBody) -> Response:
    """Set priorities of chunks. Those that are not there any more are named, and passed over."""
    priorities = parse(Priorities, body).priorities
    there = await found.replay.update_priorities(run, priorities)
    return model_reply(PrioritiesSet(updated=len(there), missing=sorted(priorities.keys() - set(there))))


@router.get("/chunks", summary="Look at chunks", response_model=Chunks, responses=docs.READS)
async def list_chunks(
    run: NamedRun,
    found: Found,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most chunks on the page.")] = 100,
    cursor: Annotated[str | None, Query(pattern="^[0-9]{1,18}$", description="Of the page before.")] = None,
    sort: SortBy = None,
    descending: Annotated[bool, Query(description="The largest first.")] = False,
    place: Annotated[str, Query(max_length=32, description="`sampleable`, `withheld` or `past`.")] = "sampleable",
    worker: OfWorker = None,
    session: OfSession = None,
    version: OfVersion = None,
) -> Response:
    """Answer chunks, page by page."""
    page = await found.replay.chunks(
        run,
        limit=limit,
        cursor=cursor,
        sort=sort,
        descending=descending,
        place=place,
        worker=worker,
        session=session,
        version=version,
    )
    return await large_json_reply(request, shown_chunks(page).model_dump_json().encode())


@router.delete("/chunks", summary="Retire chunks", response_model=ChunksDeleted, responses=docs.WRITES)
async def delete_chunks(
    run: NamedRun,
    found: Found,
    worker: OfWorker = None,
    session: OfSession = None,
    version: OfVersion = None,
    below_version: Annotated[_Whole, Query(description="Only those of policy versions below this.")] = None,
) -> Response:
    """Retire the chunks that are of all that is named; without a name, all. Samples that hold them keep them."""
    retired = await found.replay.delete_chunks(
        run, worker=worker, session=session, version=version, below_version=below_version
    )
    return model_reply(ChunksDeleted(retired_chunks=retired))


async def _configured(found: Found, run: str, changes: dict[str, Any], *, keep: bool = False) -> Response:
    try:
        return model_reply(shown_state(await found.replay.configure(run, changes, keep=keep)))
    except InvalidField as error:
        if error.location and error.location[0] in RateLimiter.model_fields:
            raise InvalidField(str(error), ("limiter", *error.location)) from None
        raise
