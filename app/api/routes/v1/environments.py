"""Environments on the native API."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from app.api.deps import Found, NamedRun, SmallBody, parse
from app.api.native_route import NativeRoute
from app.api.replies import model_reply
from app.api.routes.answer_docs import reading, sending, with_headers, writing
from app.api.routes.body_docs import takes
from app.core import errors
from app.core.enrolment import Application
from app.core.granting import Grant
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.environments import (
    Credits,
    EnvironmentChange,
    EnvironmentCreate,
    Environments,
    Heartbeat,
)
from lachesis.wire.status import EnvironmentStatus

_MISSING = (errors.RunNotFound, errors.EnvironmentNotFound)
_MADE = with_headers(201, Location="Where it is.")
_THERE = with_headers(200, Location="Where it is.")

router = APIRouter(prefix="/v1/runs/{run}/environments", tags=["environments"], route_class=NativeRoute)

EnvironmentId = Annotated[int, Path(ge=0, le=MAX_INTEGER, description="The environment's id.", examples=[0])]


@router.post(
    "",
    summary="Join",
    status_code=201,
    response_model=EnvironmentStatus,
    responses=sending(errors.RunNotFound)
    | _MADE
    | {200: _THERE[200] | {"model": EnvironmentStatus, "description": "It is there; what is said now counts."}},
    openapi_extra=takes(EnvironmentCreate),
)
async def join(run: NamedRun, found: Found, body: SmallBody) -> Response:
    """Register an environment under its name. Registered again it is the same one (200), with what is said now."""
    asked = parse(EnvironmentCreate, body)
    application = Application(
        desired_name=asked.name,
        group_size=asked.group_size,
        max_token_length=0,
        weight=asked.weight,
        min_share=asked.min_share,
        max_share=asked.max_share,
    )
    environment, view, new = await found.registry.join(run, application)
    (shown,) = found.status.environments(view, {environment.environment})
    location = f"/v1/runs/{run}/environments/{environment.environment}"
    return model_reply(shown, 201 if new else 200, {"Location": location})


@router.get("", summary="List environments", response_model=Environments, responses=reading(errors.RunNotFound))
async def list_environments(run: NamedRun, found: Found) -> Response:
    """List a run's environments by id, with what each has sent, waits, was promised and got."""
    view = await found.administration.get(run)
    return model_reply(Environments(environments=found.status.environments(view)))


@router.get(
    "/{environment}",
    summary="Look at an environment",
    response_model=EnvironmentStatus,
    responses=reading(*_MISSING),
)
async def get_environment(run: NamedRun, environment: EnvironmentId, found: Found) -> Response:
    """Answer one environment."""
    view = await found.registry.known(run, environment)
    return model_reply(found.status.environments(view, {environment})[0])


@router.patch(
    "/{environment}",
    summary="Change an environment",
    response_model=EnvironmentStatus,
    responses=sending(*_MISSING),
    openapi_extra=takes(EnvironmentChange),
)
async def change_environment(run: NamedRun, environment: EnvironmentId, found: Found, body: SmallBody) -> Response:
    """Change shares, weight or group size while it goes on: what the body names (JSON merge patch)."""
    asked = parse(EnvironmentChange, body)
    changes = {name: getattr(asked, name) for name in asked.model_fields_set}
    view = await found.registry.change_environment(run, environment, changes)
    return model_reply(found.status.environments(view, {environment})[0])


@router.delete("/{environment}", summary="Say goodbye", status_code=204, responses=writing(*_MISSING))
async def leave(run: NamedRun, environment: EnvironmentId, found: Found) -> Response:
    """Note that an environment leaves: its minimum no longer binds, its groups stay usable."""
    await found.registry.known(run, environment)
    await found.registry.disconnect_environment(run, environment)
    return Response(status_code=204)


@router.post(
    "/{environment}/heartbeat",
    summary="Give a sign of life",
    response_model=Credits,
    responses=sending(*_MISSING),
    openapi_extra=takes(Heartbeat, required=False),
)
async def heartbeat(run: NamedRun, environment: EnvironmentId, found: Found, body: SmallBody) -> Response:
    """Say that an environment is alive, and how many groups it has running; answered with its credits."""
    asked = parse(Heartbeat, body) if body else Heartbeat()
    return model_reply(_credits(await found.registry.heartbeat(run, environment, asked.running_groups)))


@router.get(
    "/{environment}/credits",
    summary="How many groups to start",
    response_model=Credits,
    responses=writing(*_MISSING),
)
async def get_credits(
    run: NamedRun,
    environment: EnvironmentId,
    found: Found,
    running_groups: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="Groups it has started and not submitted yet.")
    ] = None,
) -> Response:
    """Answer how many groups an environment may start now so that they are still fresh and wanted when trained on.

    The rule is AReaL's, split by share (docs/api.md). A sign of life.
    """
    return model_reply(_credits(await found.registry.heartbeat(run, environment, running_groups)))


def _credits(grant: Grant) -> Credits:
    return Credits(
        credits_groups=grant.groups,
        credits_sequences=grant.credit.sequences,
        horizon_batches=grant.horizon_batches,
        wanted_sequences=grant.credit.wanted,
        in_hand_sequences=grant.credit.in_hand,
        policy_version=grant.policy_version,
        reason=grant.credit.reason,
    )
