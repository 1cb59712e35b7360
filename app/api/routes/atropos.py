"""The Atropos surface: the endpoints that its environments and trainers call, for one run.

The replies follow the contract exactly, with its oddities (failures as 200, a GET that resets). The errors of the
original are not repeated. `docs/how-to/move-from-atropos.md` has the differences.
"""

import uuid
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from app.api.codec.scored_data import decode_group, decode_groups
from app.api.deps import (
    AfterEnvironment,
    Run,
    ServicesDep,
    ShownEnvironments,
    SmallBody,
    SubmittedBody,
    get_services,
    parameters,
    parse,
    run_name,
    small_body,
)
from app.api.http.access.control import IdentityDep, identity_of
from app.api.http.browser_guard import refuse_browsers
from app.api.http.caller import sender_of
from app.api.http.openapi import Responses, body_responses, json_body, response_examples, response_headers
from app.api.http.rate_limits import count_more
from app.api.http.replies import large_model_reply, model_reply
from app.api.http.routing import DirectRoute, GuardedRoute, requires
from app.api.wire import atropos as wire
from app.api.wire.status import shown_status
from app.core.access.permissions import Permission, check_environment, may_begin_run, operates
from app.core.access.rate_limits import Use
from app.core.environments.registration import RegistrationRequest
from app.core.runs.settings import RunConfig
from app.services.status import ENVIRONMENTS_SHOWN
from lachesis.wire import errors
from lachesis.wire.atropos import (
    Buffered,
    Done,
    EnvironmentIdentifier,
    EnvironmentPace,
    EnvironmentRegistered,
    Failed,
    Hello,
    ListBuffered,
    ListReceived,
    NoExample,
    NotRegistered,
    Received,
    RegisterEnvironment,
    RegisterReply,
    Registration,
    RunInfo,
    ScoredData,
    ServedBatch,
    ServedGroup,
    WaitForTrainer,
    WandbInfo,
)
from lachesis.wire.blockers import Blocker
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.errors import InvalidField
from lachesis.wire.status import RunStatus

_GROUP = {
    "tokens": [[1, 15043, 29991, 2], [1, 15043, 2]],
    "masks": [[-100, -100, 29991, 2], [-100, -100, 2]],
    "scores": [1.0, -0.5],
    "advantages": None,
    "ref_logprobs": None,
    "messages": None,
    "generation_params": None,
    "inference_logprobs": [[1.0, 1.0, -0.25, -0.125], [1.0, 1.0, -2.5]],
    "overrides": None,
    "group_overrides": None,
    "images": None,
    "env_id": 0,
    "distill_token_ids": None,
    "distill_logprobs": None,
}
_JOINED = {
    "status": "success",
    "env_id": 0,
    "wandb_name": "gsm8k_0",
    "checkpoint_dir": "checkpoints",
    "starting_step": 0,
    "checkpoint_interval": 100,
    "num_steps": 1000,
}
_PACE = {
    "current_step": 41,
    "queue_size": 12,
    "unallocated_fraction": 0.75,
    "self_queue_size": 5,
    "max_group_size": 8,
    "env_weight": 0.5,
}
_SOME_BUFFERED = {"status": "received", "groups_processed": 2, "buffered": 1, "last_buffer_size": 3}
_ROOT = response_examples(hello={"message": "AtroposLib API"})
_ROOT[200]["content"]["text/html"] = {"schema": {"type": "string"}}
_BATCH: Responses = {
    200: response_examples(batch={"batch": [_GROUP]}, not_ready={"batch": None})[200]
    | response_headers(
        200,
        Lachesis_Waiting="Why there is no batch.",
        Lachesis_Batch="The batch's id.",
        Lachesis_Step="The batch's step.",
        Lachesis_Delivery_Count="Number of times that the batch was handed out.",
        Lachesis_Relaxed="`true` if a minimum was relaxed.",
    )[200]
}
_PROBLEMS = body_responses(errors.RunArchived, errors.RunNotFound)
_SUBMISSION_PROBLEMS = body_responses(errors.QueueFull, errors.RunArchived, errors.RunNotFound, errors.TooManyRuns)
_EXAMPLE = body_responses(errors.RunArchived, errors.RunNotFound, errors.TooManyReads) | response_examples(group=_GROUP)

router = APIRouter(tags=["atropos"], responses=_PROBLEMS, route_class=GuardedRoute)
direct = APIRouter(tags=["atropos"], responses=_PROBLEMS, route_class=DirectRoute)


class _PaceQuery(BaseModel):
    """The query of a request for the pace of an environment."""

    env_id: Annotated[
        int | None, Field(ge=0, le=MAX_INTEGER, description="Instead of a body, which proxies drop from a GET.")
    ] = None


async def documented_pace_query(query: Annotated[_PaceQuery, Query()]) -> _PaceQuery:
    """Declare the query of a request for the pace. A `DirectRoute` never calls this."""
    return query


@router.get("/", summary="Who is this?", response_model=Hello, responses=_ROOT)
@requires(Permission.DESCRIBE)
async def root() -> Response:
    """Answer as the original does. Clients ask to see whether the server is up. Browsers get a page instead."""
    return model_reply(Hello(message="AtroposLib API"), headers={"Vary": "Accept"})


@router.post(
    "/register",
    summary="Register the trainer",
    response_model=RegisterReply,
    responses=body_responses(errors.NotAnAtroposRun, errors.RunArchived, errors.TooManyRuns)
    | response_examples(registered={"uuid": 4503599627370495}),
    openapi_extra=json_body(Registration),
)
@requires(Permission.TRAIN, audited=True)
async def register(run: Run, services: ServicesDep, identity: IdentityDep, body: SmallBody) -> Response:
    """Set the run's configuration. The same configuration again changes nothing. Another one replaces it.

    In a run that was made under `/v1`, only role `operator` may replace it. Only role `operator` may register with an
    archived run. Batches that a former trainer did not acknowledge are handed out again first.
    """
    config = RunConfig(**parse(Registration, body).model_dump())
    await services.runs.atropos.register(run, config, by_operator=operates(identity, run))
    return model_reply(RegisterReply(uuid=uuid.uuid4().int >> 75))  # below 2^53: JavaScript and floats keep it


@router.post(
    "/register-env",
    summary="Register an environment",
    response_model=EnvironmentRegistered | WaitForTrainer,
    responses=body_responses(errors.RunFull, errors.TooManyNewEnvironments)
    | response_examples(joined=_JOINED, too_early={"status": "wait for trainer to start"}),
    openapi_extra=json_body(RegisterEnvironment),
)
@requires(Permission.PRODUCE)
async def register_env(
    run: Run, request: Request, services: ServicesDep, identity: IdentityDep, body: SmallBody
) -> Response:
    """Register an environment. An environment that comes back gets its old id.

    The answer is `wait for trainer to start` until the trainer has asked for its first batch. A token with an
    environment registers at most 64 environments of this name. Their minimum shares sum to at most 1.
    """
    asked = parse(RegisterEnvironment, body)
    check_environment(identity.environment, asked.desired_name)
    application = RegistrationRequest(
        desired_name=asked.desired_name,
        group_size=asked.group_size,
        max_token_length=asked.max_token_length,
        weight=asked.weight,
        min_share=asked.min_batch_allocation,
    )
    registered = await services.environments.registry.register_environment(
        run, application, sender_of(request.scope), as_one=identity.environment is not None
    )
    if registered is None:
        return model_reply(WaitForTrainer())
    return wire.registration_reply(services.environments.registry, run, *registered)


@router.post(
    "/disconnect-env",
    summary="Disconnect an environment",
    response_model=Done | Failed,
    responses=response_examples(
        gone={"status": "success"}, unknown={"status": "failure", "error": "there is no environment 3"}
    ),
    openapi_extra=json_body(EnvironmentIdentifier),
)
@requires(Permission.PRODUCE, audited=True)
async def disconnect_env(run: Run, services: ServicesDep, identity: IdentityDep, body: SmallBody) -> Response:
    """Record that an environment leaves. Its minimum share no longer counts, and its groups stay in the queue."""
    environment = parse(EnvironmentIdentifier, body).env_id
    await services.environments.registry.check_name(run, environment, identity.environment)
    if await services.environments.registry.disconnect_environment(run, environment):
        return model_reply(Done())
    return model_reply(Failed(error=f"there is no environment {environment}"))


@router.get(
    "/wandb_info",
    summary="Where to log",
    response_model=WandbInfo,
    responses=response_examples(registered={"group": "grpo", "project": "math-rl"}),
)
@requires(Permission.READ_SETTINGS)
async def wandb_info(run: Run, services: ServicesDep) -> Response:
    """Return the group and project of Weights & Biases, null before `/register`."""
    return model_reply(wire.wandb_info(await services.runs.atropos.view(run)))


@router.get(
    "/info",
    summary="Batch size and longest sequence",
    response_model=RunInfo,
    responses=response_examples(registered={"batch_size": 128, "max_token_len": 2048}),
)
@requires(Permission.READ_SETTINGS)
async def info(run: Run, services: ServicesDep) -> Response:
    """Return `batch_size` and `max_token_len`, -1 before `/register`."""
    return model_reply(wire.run_info(await services.runs.atropos.view(run)))


@router.get(
    "/batch",
    summary="Take the next batch",
    response_model=ServedBatch | NotRegistered,
    responses=_BATCH,
)
@requires(Permission.TRAIN)
async def get_batch(run: Run, services: ServicesDep, request: Request) -> Response:
    """Take a batch of exactly `batch_size` sequences, or `{"batch": null}` at once.

    A completed reply acknowledges the batch before it. A batch whose reply broke off is handed out again first.
    """
    refuse_browsers(request)
    result = await services.batches.dispatch.take(run)
    if result.not_ready is not None and result.not_ready.blocker is Blocker.NOT_REGISTERED:
        return model_reply(NotRegistered(message="Trainer not registered. Call /register first."))
    return await wire.batch_reply(request, services.batches.atropos_delivery, run, result)


@router.get(
    "/latest_example",
    summary="The newest group",
    response_model=ServedGroup | NoExample,
    responses=_EXAMPLE,
)
@requires(Permission.READ_CONTENTS)
async def latest_example(run: Run, services: ServicesDep, request: Request) -> Response:
    """Return the newest group, or empty lists before there is one.

    If replies that clients have not taken fill the memory for contents, the answer is `too_many_reads`.
    """
    return await wire.example_reply(request, services.groups.contents, services.contents, run)


@direct.post(
    "/scored_data",
    summary="Submit a group",
    response_model=Received | Buffered,
    responses=_SUBMISSION_PROBLEMS
    | response_examples(queued={"status": "received"}, of_another_size={"status": "buffered", "buffer_size": 3}),
    openapi_extra=json_body(ScoredData),
)
@requires(Permission.PRODUCE)
async def scored_data(request: Request) -> Response:
    """Store one group. With `LACHESIS_FSYNC` `always` (default), it then survives a crash."""
    identity = identity_of(request.scope)
    async with SubmittedBody(request) as (run, services, body):
        group = await services.decoder.json(decode_group, body, request.scope)
        await count_more(request.scope, Use(groups=1))
        (stored,) = await services.groups.atropos.submit(
            run, [group], identity.environment, identity.queue, makes_run=may_begin_run(identity, run)
        )
    return model_reply(wire.receipt(stored))


@direct.post(
    "/scored_data_list",
    summary="Submit groups",
    response_model=ListReceived | ListBuffered,
    responses=_SUBMISSION_PROBLEMS
    | response_examples(queued={"status": "received", "groups_processed": 2}, some_buffered=_SOME_BUFFERED),
    openapi_extra=json_body(ScoredData, many=True),
)
@requires(Permission.PRODUCE)
async def scored_data_list(request: Request) -> Response:
    """Store a list of groups, all or none."""
    identity = identity_of(request.scope)
    async with SubmittedBody(request) as (run, services, body):
        groups = await services.decoder.json(decode_groups, body, request.scope)
        await count_more(request.scope, Use(groups=len(groups)))
        stored = await services.groups.atropos.submit(
            run, groups, identity.environment, identity.queue, makes_run=may_begin_run(identity, run)
        )
    return model_reply(wire.receipts(stored))


@router.get("/status", summary="Status of the run", response_model=RunStatus)
@requires(Permission.READ)
async def status(
    run: Run,
    services: ServicesDep,
    request: Request,
    limit: ShownEnvironments = ENVIRONMENTS_SHOWN,
    after: AfterEnvironment = -1,
) -> Response:
    """Return the contract's `current_step` and `queue_size`, and the state of the run for operators."""
    facts, connections = await services.runs.status.of(run, limit, after), services.connections.of_run(run)
    status = shown_status(facts, services.access.authenticator.mode, connections)
    return await large_model_reply(request, status)


@direct.get(
    "/status-env",
    summary="Pace an environment",
    response_model=EnvironmentPace,
    responses=response_examples(pace=_PACE),
    openapi_extra=json_body(EnvironmentIdentifier, required=False),
    dependencies=[Depends(documented_pace_query)],
)
@requires(Permission.PRODUCE)
async def status_env(request: Request) -> Response:
    """Return how full the queue is for an environment. The request counts as its heartbeat."""
    refuse_browsers(request)
    services = await get_services(request)
    run, body = await run_name(request), await small_body(request, services)
    environment = parameters(_PaceQuery, dict(request.query_params), "query").env_id
    if body:
        environment = parse(EnvironmentIdentifier, body).env_id
    if environment is None:
        raise InvalidField("field required, as ?env_id= or in a JSON body", ("env_id",))
    only = identity_of(request.scope).environment
    await services.environments.registry.check_name(run, environment, only)
    return model_reply(EnvironmentPace(**asdict(await services.environments.allowances.pace(run, environment))))


@router.get(
    "/reset_data",
    summary="Start over",
    response_class=PlainTextResponse,
    responses=body_responses(errors.NotAnAtroposRun, errors.RunArchived),
)
@requires(Permission.TRAIN, audited=True)
async def reset_data(run: Run, services: ServicesDep, identity: IdentityDep, request: Request) -> Response:
    """Forget the run's settings, environments and groups. A run made under `/v1` is not reset.

    Only role `operator` may reset an archived run. The answer is plain text, as that of Atropos.
    """
    refuse_browsers(request)
    await services.runs.atropos.reset(run, by_operator=operates(identity, run))
    return PlainTextResponse("Reset successful")
