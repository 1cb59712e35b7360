"""Checkpoints of a replay buffer on the native API: taken, shown, restored, let go."""

import uuid
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from app.api.deps import Found, NamedRun, SmallBody, parse
from app.api.http.replay_route import ReplayRoute
from app.api.http.replies import large_json_reply, model_reply
from app.api.routes import replay_docs as docs
from app.api.routes.body_docs import takes
from app.api.wire.replay import shown_checkpoint, shown_state
from lachesis.wire.checkpoints import CHECKPOINT_NAME, Checkpoint, Checkpoints, RestoreCheckpoint, TakeCheckpoint
from lachesis.wire.replay import ReplayState

router = APIRouter(prefix="/v1/runs/{run}/replay", tags=["replay"], route_class=ReplayRoute)

_Name = Annotated[str, Path(pattern=f"^{CHECKPOINT_NAME}$", description="The checkpoint's name.")]


@router.post(
    "/checkpoint",
    summary="Take a checkpoint",
    status_code=201,
    response_model=Checkpoint,
    responses=docs.SENDS,
    openapi_extra=takes(TakeCheckpoint),
)
async def take_checkpoint(run: NamedRun, found: Found, body: SmallBody) -> Response:
    """Note the buffer as it is now. The oldest checkpoint goes where there are `keep_checkpoints`.

    Payloads are not copied; they stay as long as a checkpoint names them.
    """
    name = parse(TakeCheckpoint, body).name or uuid.uuid4().hex
    taken = await found.replay_checkpoints.take(run, name)
    return model_reply(shown_checkpoint(taken, taken.taken_ms), 201)


@router.get("/checkpoints", summary="List checkpoints", response_model=Checkpoints, responses=docs.READS)
async def list_checkpoints(run: NamedRun, found: Found) -> Response:
    """Answer the checkpoints there are, oldest first."""
    there, clock_ms = await found.replay_checkpoints.all(run)
    return model_reply(Checkpoints(checkpoints=[shown_checkpoint(one, clock_ms) for one in there]))


@router.post(
    "/restore",
    summary="Go back to a checkpoint",
    response_model=ReplayState,
    responses=docs.RESTORES,
    openapi_extra=takes(RestoreCheckpoint),
)
async def restore_checkpoint(run: NamedRun, found: Found, body: SmallBody, request: Request) -> Response:
    """Make the buffer what it was, settings included; then the staleness rule is applied with the version in force.

    Samples held when it was taken count as given back, and those held now have ended. The checkpoint stays.
    """
    await found.replay_checkpoints.restore(run, parse(RestoreCheckpoint, body).name)
    state = shown_state(await found.replay.state(run))
    return await large_json_reply(request, state.model_dump_json().encode())


@router.delete(
    "/checkpoints/{checkpoint}", summary="Let a checkpoint go", status_code=204, responses=docs.DROPS_CHECKPOINT
)
async def delete_checkpoint(run: NamedRun, checkpoint: _Name, found: Found) -> Response:
    """Remove a checkpoint; payloads that only it named are removed with it."""
    await found.replay_checkpoints.drop(run, checkpoint)
    return Response(status_code=204)
