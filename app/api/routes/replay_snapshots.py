"""Snapshots of a replay buffer on the native API: taken, shown, restored, let go."""

import uuid
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from app.api.deps import Found, NamedRun, SmallBody, parse
from app.api.http.replay_route import ReplayRoute
from app.api.http.replies import large_json_reply, model_reply
from app.api.routes import replay_docs as docs
from app.api.routes.body_docs import takes
from app.api.wire.replay import shown_snapshot, shown_state
from lachesis.wire.replay import ReplayState
from lachesis.wire.snapshots import SNAPSHOT_NAME, ReplaySnapshot, RestoreSnapshot, Snapshots, TakeSnapshot

router = APIRouter(prefix="/v1/runs/{run}/replay", tags=["replay"], route_class=ReplayRoute)

_Name = Annotated[str, Path(pattern=f"^{SNAPSHOT_NAME}$", description="The snapshot's name.")]


@router.post(
    "/snapshots",
    summary="Take a snapshot",
    status_code=201,
    response_model=ReplaySnapshot,
    responses=docs.SENDS,
    openapi_extra=takes(TakeSnapshot),
)
async def take_snapshot(run: NamedRun, found: Found, body: SmallBody) -> Response:
    """Note the buffer as it is now. The oldest snapshot goes where there are `keep_snapshots`.

    Payloads are not copied; they stay as long as a snapshot names them.
    """
    name = parse(TakeSnapshot, body).name or uuid.uuid4().hex
    taken = await found.replay_snapshots.take(run, name)
    return model_reply(shown_snapshot(taken, taken.taken_ms), 201)


@router.get("/snapshots", summary="List snapshots", response_model=Snapshots, responses=docs.READS)
async def list_snapshots(run: NamedRun, found: Found) -> Response:
    """Answer the snapshots there are, oldest first."""
    there, clock_ms = await found.replay_snapshots.all(run)
    return model_reply(Snapshots(snapshots=[shown_snapshot(one, clock_ms) for one in there]))


@router.post(
    "/restore",
    summary="Go back to a snapshot",
    response_model=ReplayState,
    responses=docs.RESTORES,
    openapi_extra=takes(RestoreSnapshot),
)
async def restore_snapshot(run: NamedRun, found: Found, body: SmallBody, request: Request) -> Response:
    """Make the buffer what it was, settings included; then the staleness rule is applied with the version in force.

    Samples held when it was taken count as given back, and those held now have ended. The snapshot stays.
    """
    await found.replay_snapshots.restore(run, parse(RestoreSnapshot, body).name)
    state = shown_state(await found.replay.state(run))
    return await large_json_reply(request, state.model_dump_json().encode())


@router.delete("/snapshots/{snapshot}", summary="Let a snapshot go", status_code=204, responses=docs.DROPS_SNAPSHOT)
async def delete_snapshot(run: NamedRun, snapshot: _Name, found: Found) -> Response:
    """Remove a snapshot; payloads that only it named are removed with it."""
    await found.replay_snapshots.drop(run, snapshot)
    return Response(status_code=204)
