"""The replay buffer of a run: settings, chunks, snapshots."""

import uuid
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from app.api.deps import NamedRun, ServicesDep, SmallBody, parse, parse_large
from app.api.http.openapi import body_responses, json_body, read_responses, write_responses
from app.api.http.replies import large_model_reply, model_reply
from app.api.http.routing import RunRoute, requires
from app.api.wire.replay import shown_chunks, shown_snapshot, shown_state
from app.core.access.permissions import Permission
from lachesis.wire import errors
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.replay import (
    Chunks,
    ChunksDeleted,
    Priorities,
    PrioritiesSet,
    RateLimiter,
    ReplayChange,
    ReplayGrid,
    ReplaySettings,
    ReplayState,
    SessionSet,
    SessionStart,
)
from lachesis.wire.snapshots import SNAPSHOT_NAME, ReplaySnapshot, RestoreSnapshot, Snapshots, TakeSnapshot
from lachesis.wire.states import ChunkSorting

_MISSING = (errors.RunNotFound, errors.ReplayNotFound)

_READ = read_responses(*_MISSING)
_WRITE = write_responses(*_MISSING)
_BODY = body_responses(*_MISSING)

_Whole = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]
SnapshotName = Annotated[str, Path(pattern=f"^{SNAPSHOT_NAME}$", description="The snapshot's name.")]
SortBy = Annotated[
    ChunkSorting | None,
    Query(
        description="By order of insertion, weight, version or uses. `reserved` chunks can be sorted by version only, "
        "`archived` chunks by order of insertion only."
    ),
]
OfWorker = Annotated[str | None, Query(max_length=128, description="Chunks of this worker.")]
OfVersion = Annotated[_Whole, Query(description="Chunks of this policy version.")]
OfSession = Annotated[_Whole, Query(description="Chunks of this session.")]

router = APIRouter(prefix="/v1/runs/{run}/replay", tags=["replay"], route_class=RunRoute)


# The buffer


@router.put(
    "",
    summary="Set up a buffer",
    response_model=ReplayState,
    responses=body_responses(errors.RunNotFound),
    openapi_extra=json_body(ReplaySettings),
)
@requires(Permission.SET_UP)
async def put_replay(
    run: NamedRun,
    services: ServicesDep,
    body: SmallBody,
    *,
    if_absent: Annotated[bool, Query(description="Return an existing buffer unchanged.")] = False,
) -> Response:
    """Create the run's replay buffer, or replace all settings of an existing one. Its chunks stay."""
    changes = dict(parse(ReplaySettings, body))
    return await _configured(services, run, changes, keep=if_absent)


@router.patch(
    "", summary="Change a buffer", response_model=ReplayState, responses=_BODY, openapi_extra=json_body(ReplayChange)
)
@requires(Permission.SET_UP)
async def change_replay(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Change the settings in the body. Settings that are left out stay."""
    asked = parse(ReplayChange, body)
    await services.replay.buffers.state(run)
    changes = {name: getattr(asked, name) for name in asked.model_fields_set}
    return await _configured(services, run, changes)


@router.get("", summary="Status of the buffer", response_model=ReplayState, responses=_READ)
@requires(Permission.READ)
async def get_replay(run: NamedRun, services: ServicesDep, request: Request) -> Response:
    """Return settings, sizes, histograms, what blocks inserts and samples, and the workers."""
    state = shown_state(await services.replay.buffers.state(run))
    return await large_model_reply(request, state)


@router.delete("", summary="Delete the buffer", status_code=204, responses=_WRITE)
@requires(Permission.OPERATE)
async def delete_replay(run: NamedRun, services: ServicesDep) -> Response:
    """Delete the buffer with its settings, chunks, samples and snapshots. The run stays."""
    await services.replay.snapshots.delete_buffer(run)
    return Response(status_code=204)


@router.put(
    "/session",
    summary="Begin a session",
    response_model=SessionSet,
    responses=_BODY,
    openapi_extra=json_body(SessionStart),
)
@requires(Permission.TRAIN, audited=True)
async def put_session(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Start a training attempt. Chunks of earlier attempts are archived: you can read them until they are evicted."""
    session = parse(SessionStart, body).session
    return model_reply(
        SessionSet(session=session, retired_chunks=await services.replay.buffers.set_session(run, session))
    )


@router.patch(
    "/priorities",
    summary="Set priorities",
    response_model=PrioritiesSet,
    responses=_BODY,
    openapi_extra=json_body(Priorities),
)
@requires(Permission.TRAIN)
async def patch_priorities(run: NamedRun, services: ServicesDep, request: Request) -> Response:
    """Set priorities of chunks. The reply names the chunks that no longer exist."""
    priorities = (await parse_large(Priorities, request)).priorities
    there = await services.replay.buffers.update_priorities(run, priorities)
    return model_reply(PrioritiesSet(updated=len(there), missing=sorted(priorities.keys() - set(there))))


@router.get("/chunks", summary="List chunks", response_model=Chunks, responses=_READ)
@requires(Permission.READ)
async def list_chunks(
    run: NamedRun,
    services: ServicesDep,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of chunks on the page.")] = 100,
    cursor: Annotated[
        str | None, Query(pattern="^[0-9]{1,18}$", description="The `cursor` of the last answer.")
    ] = None,
    sort: SortBy = None,
    descending: Annotated[bool, Query(description="Whether the largest come first.")] = False,
    place: Annotated[str, Query(max_length=32, description="`sampleable`, `reserved` or `archived`.")] = "sampleable",
    worker: OfWorker = None,
    session: OfSession = None,
    version: OfVersion = None,
) -> Response:
    """Return chunks, page by page."""
    page = await services.replay.buffers.chunks(
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
    return await large_model_reply(request, shown_chunks(page))


@router.get("/grid", summary="Chunks by age and uses", response_model=ReplayGrid, responses=_READ)
@requires(Permission.READ)
async def get_grid(run: NamedRun, services: ServicesDep, request: Request) -> Response:
    """Return how many chunks have which age and uses, and their mean priority. A large buffer is sampled.

    Repeated requests look at the same places of the buffer.
    """

    async def looked() -> bytes:
        found = await services.replay.grids.of(run)
        shown = ReplayGrid(chunks=found.chunks, looked_at=found.looked_at, **asdict(found.grid))
        return shown.model_dump_json().encode()

    return await services.answers.reply(request, looked)


@router.delete("/chunks", summary="Retire chunks", response_model=ChunksDeleted, responses=_WRITE)
@requires(Permission.OPERATE)
async def delete_chunks(
    run: NamedRun,
    services: ServicesDep,
    worker: OfWorker = None,
    session: OfSession = None,
    version: OfVersion = None,
    below_version: Annotated[_Whole, Query(description="Chunks of policy versions below this.")] = None,
) -> Response:
    """Retire the chunks that match every criterion, or all chunks. Samples keep the chunks that they hold."""
    retired = await services.replay.buffers.delete_chunks(
        run, worker=worker, session=session, version=version, below_version=below_version
    )
    return model_reply(ChunksDeleted(retired_chunks=retired))


async def _configured(services: ServicesDep, run: str, changes: dict[str, Any], *, keep: bool = False) -> Response:
    try:
        return model_reply(shown_state(await services.replay.buffers.configure(run, changes, keep=keep)))
    except errors.InvalidField as error:
        if error.location and error.location[0] in RateLimiter.model_fields:
            raise errors.InvalidField(error.message, ("limiter", *error.location)) from None
        raise


# Snapshots


@router.post(
    "/snapshots",
    summary="Take a snapshot",
    status_code=201,
    response_model=ReplaySnapshot,
    responses=_BODY,
    openapi_extra=json_body(TakeSnapshot),
)
@requires(Permission.TRAIN)
async def take_snapshot(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Take a snapshot of the buffer. If there are more than `keep_snapshots`, the oldest is deleted.

    Payloads are not copied. They are kept while a snapshot refers to them.
    """
    name = parse(TakeSnapshot, body).name or uuid.uuid4().hex
    taken = await services.replay.snapshots.take(run, name)
    return model_reply(shown_snapshot(taken, taken.taken_ms), 201)


@router.get("/snapshots", summary="List snapshots", response_model=Snapshots, responses=_READ)
@requires(Permission.READ)
async def list_snapshots(run: NamedRun, services: ServicesDep) -> Response:
    """Return the snapshots, oldest first."""
    there, clock_ms = await services.replay.snapshots.all(run)
    return model_reply(Snapshots(snapshots=[shown_snapshot(one, clock_ms) for one in there]))


@router.post(
    "/restore",
    summary="Restore a snapshot",
    response_model=ReplayState,
    responses=body_responses(*_MISSING, errors.SnapshotNotFound),
    openapi_extra=json_body(RestoreSnapshot),
)
@requires(Permission.TRAIN, audited=True)
async def restore_snapshot(run: NamedRun, services: ServicesDep, body: SmallBody, request: Request) -> Response:
    """Restore the buffer, settings included. Then the staleness rule is applied with the current policy version.

    Samples held at the time of the snapshot count as given back. Samples held now end. The snapshot stays.
    """
    await services.replay.snapshots.restore(run, parse(RestoreSnapshot, body).name)
    state = shown_state(await services.replay.buffers.state(run))
    return await large_model_reply(request, state)


@router.delete(
    "/snapshots/{snapshot}",
    summary="Delete a snapshot",
    status_code=204,
    responses=write_responses(*_MISSING, errors.SnapshotNotFound),
)
@requires(Permission.OPERATE)
async def delete_snapshot(run: NamedRun, snapshot: SnapshotName, services: ServicesDep) -> Response:
    """Delete a snapshot, and the payloads that only it refers to."""
    await services.replay.snapshots.drop(run, snapshot)
    return Response(status_code=204)
