"""The environments of a run: members, settings, heartbeats, credits."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.deps import (
    InRun,
    NamedRun,
    Services,
    ServicesDep,
    SmallBody,
    checked_run_name,
    get_services,
    parameters,
    parse,
    query_value,
    small_body,
)
from app.api.http.access.audit import Handler, audited
from app.api.http.access.control import IdentityDep, identity_of
from app.api.http.caller import sender_of
from app.api.http.openapi import body_responses, json_body, read_responses, response_headers, write_responses
from app.api.http.replies import model_reply
from app.api.http.routing import DirectNativeRoute, NativeRoute, requires
from app.api.http.tracing import spans
from app.api.wire.status import shown_environment, shown_environments, shown_warnings
from app.core.access.permissions import Permission, check_environment
from app.core.environments.granting import GroupAllowance
from lachesis.wire import errors
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.environments import (
    Credits,
    EnvironmentChange,
    EnvironmentCreate,
    Environments,
    Heartbeat,
    Joined,
    Member,
    MemberId,
    Members,
)
from lachesis.wire.status import EnvironmentStatus

_MISSING = (errors.RunNotFound, errors.EnvironmentNotFound)
_MISSING_MEMBER = (*_MISSING, errors.MemberNotFound)
_MOST_LISTED = 1000  # members on a page
_MADE = response_headers(201, Location="Its path.")
_THERE = response_headers(200, Location="Its path.")

direct = APIRouter(
    prefix="/v1/runs/{run}/environments",
    tags=["environments"],
    route_class=DirectNativeRoute,
    dependencies=[Depends(checked_run_name)],
)
router = APIRouter(prefix="/v1/runs/{run}/environments", tags=["environments"], route_class=NativeRoute)

EnvironmentId = Annotated[int, Path(ge=0, le=MAX_INTEGER, description="The environment's id.", examples=[0])]


async def documented_environment(environment: EnvironmentId) -> int:
    """Declare an environment's id for OpenAPI. A `DirectNativeRoute` never calls this."""
    return environment


class _OfEnvironment(InRun):
    """The path of a request about an environment."""

    environment: EnvironmentId


async def documented_meant_name(
    name: Annotated[
        str | None,
        Query(
            description="Name of the environment that the id stands for. If it is that of another environment, the "
            "answer is 404 `environment_not_found`: the run may have been created again since."
        ),
    ] = None,
) -> str | None:
    """Declare the query of a heartbeat. A `DirectNativeRoute` never calls this."""
    return name


@router.get("", summary="List environments", response_model=Environments, responses=read_responses(errors.RunNotFound))
@requires(Permission.READ)
async def list_environments(run: NamedRun, services: ServicesDep) -> Response:
    """List a run's environments by id: what each has sent, what waits, its promised share and its actual share."""
    view = await services.runs.administration.with_counts(run)
    return model_reply(Environments(environments=shown_environments(services.runs.status.environments(run, view))))


@router.get(
    "/{environment}",
    summary="Get an environment",
    response_model=EnvironmentStatus,
    responses=read_responses(*_MISSING),
)
@requires(Permission.READ)
async def get_environment(run: NamedRun, environment: EnvironmentId, services: ServicesDep) -> Response:
    """Return one environment."""
    view = await services.environments.registry.known(run, environment)
    return model_reply(shown_environment(services.runs.status.environments(run, view, {environment})[0]))


@router.patch(
    "/{environment}",
    summary="Change an environment",
    response_model=EnvironmentStatus,
    responses=body_responses(*_MISSING),
    openapi_extra=json_body(EnvironmentChange),
)
@requires(Permission.OPERATE)
async def change_environment(
    run: NamedRun, environment: EnvironmentId, services: ServicesDep, body: SmallBody
) -> Response:
    """Change settings such as shares, weight or group size (JSON merge patch). Settings that are left out stay."""
    asked = parse(EnvironmentChange, body)
    changes = {name: getattr(asked, name) for name in asked.model_fields_set}
    view = await services.environments.registry.change_environment(run, environment, changes)
    return model_reply(shown_environment(services.runs.status.environments(run, view, {environment})[0]))


@router.get(
    "/{environment}/members",
    summary="List members",
    response_model=Members,
    responses=read_responses(*_MISSING),
)
@requires(Permission.READ)
async def list_members(
    run: NamedRun,
    environment: EnvironmentId,
    services: ServicesDep,
    after: Annotated[MemberId | None, Query(description="List members after this id.")] = None,
    limit: Annotated[int, Query(ge=1, le=_MOST_LISTED, description="Members on a page.")] = _MOST_LISTED,
) -> Response:
    """List the live members of an environment by id, with their running groups, permits and retries."""
    members, clock_ms = await services.environments.registry.members(run, environment)
    rest = [member for member in members if after is None or member.member > after]
    shown = [
        Member(
            member=member.member,
            running_groups=member.running_groups,
            permits=member.permits,
            retries=member.retries,
            joined_age_s=max(0, clock_ms - member.joined_ms) / 1000,
            last_seen_age_s=max(0, clock_ms - member.heard_ms) / 1000,
        )
        for member in rest[:limit]
    ]
    return model_reply(Members(members=shown, next_after=shown[-1].member if len(rest) > limit else None))


@router.delete(
    "/{environment}", summary="Leave an environment", status_code=204, responses=write_responses(*_MISSING_MEMBER)
)
@requires(Permission.PRODUCE, audited=lambda request: "member" not in request.query_params)
async def leave(
    run: NamedRun,
    environment: EnvironmentId,
    services: ServicesDep,
    identity: IdentityDep,
    member: Annotated[
        MemberId | None, Query(description="The member that leaves. Without this parameter, all members leave.")
    ] = None,
) -> Response:
    """Remove a member. With the last member the environment leaves, and its minimum share no longer counts.

    Its groups stay in the queue.
    """
    await services.environments.registry.check_name(run, environment, identity.environment)
    await services.environments.registry.leave(run, environment, member)
    return Response(status_code=204)


@direct.post(
    "",
    summary="Join an environment",
    status_code=201,
    response_model=Joined,
    responses=body_responses(
        errors.RunNotFound, errors.EnvironmentSettingsDiffer, errors.RunFull, errors.TooManyNewEnvironments
    )
    | _MADE
    | {200: _THERE[200] | {"model": Joined, "description": "The environment exists; the process is a member of it."}},
    openapi_extra=json_body(EnvironmentCreate),
)
@requires(Permission.PRODUCE)
async def join(request: Request) -> Response:
    """Join an environment as a member. The first member creates it (201).

    While other members are alive, a member with other settings is refused, unless it sends `change_settings`.
    """
    services = await get_services(request)
    run = parameters(InRun, request.path_params, "path").run
    asked = parse(EnvironmentCreate, await small_body(request, services))
    check_environment(identity_of(request.scope).environment, asked.name)

    async def answer(_: Request) -> Response:
        return await _join(services, run, asked, sender_of(request.scope))

    # It may change settings for other members. Other joins cannot, and are not recorded.
    return await (_recorded(answer) if asked.change_settings else answer)(request)


def _recorded(answer: Handler) -> Handler:
    return audited(answer, wanted=True, action="join", in_a_run=True)


async def _join(services: Services, run: str, asked: EnvironmentCreate, sender: str) -> Response:
    settings = {name: getattr(asked, name) for name in EnvironmentChange.model_fields if name in asked.model_fields_set}
    joined = await services.environments.registry.join(
        run, asked.name, settings, asked.member, change_settings=asked.change_settings, sender=sender
    )
    (facts,) = services.runs.status.environments(run, joined.view, {joined.environment})
    location = f"/v1/runs/{run}/environments/{joined.environment}"
    reply = Joined(
        **shown_environment(facts).model_dump(), member=joined.member, warnings=shown_warnings(joined.warnings)
    )
    return model_reply(reply, 201 if joined.new else 200, {"Location": location})


@direct.post(
    "/{environment}/heartbeat",
    summary="Send a heartbeat",
    response_model=Credits,
    responses=body_responses(*_MISSING_MEMBER),
    openapi_extra=json_body(Heartbeat),
    dependencies=[Depends(documented_environment), Depends(documented_meant_name)],
)
@requires(Permission.PRODUCE)
@spans("heartbeat", only_below=True)
async def heartbeat(request: Request) -> Response:
    """Report that a member is alive, how many groups it runs and how many it wants to start. Returns credits."""
    services = await get_services(request)
    path = parameters(_OfEnvironment, request.path_params, "path")
    beat = parse(Heartbeat, await small_body(request, services))
    only = identity_of(request.scope).environment
    await services.environments.registry.check_name(path.run, path.environment, only)
    meant = query_value(request, "name")
    credited = await services.environments.allowances.heartbeat(
        path.run, path.environment, beat.member, beat.running_groups, beat.start_groups, beat.retries, meant
    )
    return model_reply(_credits(credited.allowance, credited.started))


@router.get(
    "/{environment}/credits",
    summary="Get credits",
    response_model=Credits,
    responses=read_responses(*_MISSING),
)
@requires(Permission.PRODUCE)
async def get_credits(
    run: NamedRun, environment: EnvironmentId, services: ServicesDep, identity: IdentityDep
) -> Response:
    """Return how many groups all members together may start, so that they are still fresh when trained on.

    The rule is AReaL's, divided by share (docs/how-to/http-api.md). To start groups, send a heartbeat with
    `start_groups`.
    """
    await services.environments.registry.check_name(run, environment, identity.environment)
    return model_reply(_credits(await services.environments.allowances.credits(run, environment)))


def _credits(allowance: GroupAllowance, started: int = 0) -> Credits:
    return Credits(
        granted_groups=started,
        credits_groups=allowance.groups,
        credits_sequences=allowance.credit.sequences,
        horizon_batches=allowance.horizon_batches,
        wanted_sequences=allowance.credit.wanted,
        outstanding_sequences=allowance.credit.outstanding,
        policy_version=allowance.policy_version,
        reason=allowance.credit.reason,
    )
