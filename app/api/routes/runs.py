"""The runs: settings, status, policy version, checkpoints."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from app.api.deps import AfterEnvironment, NamedRun, ServicesDep, ShownEnvironments, SmallBody, parse
from app.api.http.access.audit import TOGETHER
from app.api.http.access.control import IdentityDep, check
from app.api.http.openapi import body_responses, json_body, read_responses, response_headers, write_responses
from app.api.http.replies import model_reply
from app.api.http.routing import NativeRoute, requires
from app.api.wire.status import shown_status
from app.core.access.permissions import Permission
from app.core.runs.settings import Policy, RunConfig
from app.core.runs.view import QueueView
from app.services.status import ENVIRONMENTS_SHOWN
from app.store.runs.view import RunSummary
from lachesis.wire import errors
from lachesis.wire.problems import format_validation_error, place
from lachesis.wire.runs import (
    AtroposSettings,
    Checkpoint,
    PolicyVersion,
    PolicyVersionReply,
    RetentionState,
    Rewind,
    Rewound,
    Run,
    RunChange,
    RunCreate,
    Runs,
    UnreadableRun,
)
from lachesis.wire.status import RunStatus

_MADE = response_headers(201, Location="Its path.")
_THERE = response_headers(200, Location="Its path.")

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=NativeRoute)


@router.post(
    "",
    summary="Create a run",
    status_code=201,
    response_model=Run,
    responses=body_responses(errors.RunExists, errors.RunNotFound, errors.TooManyRuns)
    | _MADE
    | {200: _THERE[200] | {"model": Run, "description": "The run exists with these settings."}},
    openapi_extra=json_body(RunCreate),
)
@requires(Permission.CREATE_RUN)
async def create_run(services: ServicesDep, identity: IdentityDep, body: SmallBody) -> Response:
    """Create a run. If it exists, nothing changes: 200, or `run_exists` if it differs from the settings named here."""
    asked = parse(RunCreate, body)
    check(identity, Permission.SET_UP, asked.name)
    config = RunConfig(batch_size=asked.batch_size, **asked.atropos.model_dump())
    given = asked.model_dump(exclude={"name", "batch_size", "atropos"})
    named = asked.model_fields_set | asked.atropos.model_fields_set
    view, new = await services.runs.administration.create(asked.name, config, Policy.model_validate(given), named)
    return model_reply(_shown(asked.name, view), 201 if new else 200, {"Location": f"/v1/runs/{asked.name}"})


@router.get("", summary="List runs", response_model=Runs, responses=read_responses())
@requires(Permission.LIST_RUNS)
async def list_runs(
    services: ServicesDep,
    identity: IdentityDep,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of runs to return.")] = 256,
    after: Annotated[str, Query(max_length=64, description="List runs after this name.")] = "",
) -> Response:
    """List the runs that the credentials are for by name, including archived runs."""
    page = await services.runs.administration.page(limit, after, identity.own)
    shown = []
    unreadable = [UnreadableRun(name=run, detail=failure.detail) for run, failure in page.unreadable.items()]
    for run, summary in page.runs.items():
        try:
            shown.append(_shown(run, summary))
        except ValidationError as error:
            first = error.errors()[0]
            unreadable.append(
                UnreadableRun(name=run, detail=f"{place(first['loc'])}: {format_validation_error(first)}")
            )
    found = Runs(runs=shown, unreadable=unreadable, unconfigured=page.unconfigured, next_after=page.next_after)
    return model_reply(found)


@router.get("/{run}", summary="Get a run", response_model=Run, responses=read_responses(errors.RunNotFound))
@requires(Permission.READ)
async def get_run(run: NamedRun, services: ServicesDep) -> Response:
    """Return a run's settings, step and policy version."""
    return model_reply(_shown(run, await services.runs.administration.get(run)))


@router.patch(
    "/{run}",
    summary="Change a run",
    response_model=Run,
    responses=body_responses(errors.RunNotFound),
    openapi_extra=json_body(RunChange),
)
@requires(Permission.OPERATE)
async def change_run(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Change the settings in the body (JSON merge patch). Settings that are left out stay."""
    asked = parse(RunChange, body)
    changes = asked.model_dump(include=asked.model_fields_set)
    return model_reply(_shown(run, await services.runs.administration.change(run, changes)))


@router.delete(
    "/{run}", summary="Delete a run", status_code=204, responses=write_responses(errors.RunNotFound, errors.RunInUse)
)
@requires(Permission.OPERATE)
async def delete_run(run: NamedRun, services: ServicesDep) -> Response:
    """Delete a run with its groups, batches, environments, replay buffer, curricula and history."""
    await services.runs.administration.delete(run)
    return Response(status_code=204)


@router.get(
    "/{run}/status",
    summary="Status of a run",
    response_model=RunStatus,
    responses=read_responses(errors.RunNotFound),
)
@requires(Permission.READ)
async def run_status(
    request: Request,
    run: NamedRun,
    services: ServicesDep,
    limit: ShownEnvironments = ENVIRONMENTS_SHOWN,
    after: AfterEnvironment = -1,
) -> Response:
    """Return the state of a run for operators: environments, waiting groups, and what blocks the next batch."""

    async def status() -> bytes:
        await services.runs.administration.check(run)
        facts = await services.runs.status.of(run, limit, after)
        connections = services.connections.of_run(run)
        return shown_status(facts, services.access.authenticator.mode, connections).model_dump_json().encode()

    return await services.answers.reply(request, status)


@router.put(
    "/{run}/policy-version",
    summary="Set the policy version",
    response_model=PolicyVersionReply,
    responses=body_responses(errors.RunNotFound, errors.RunRewound),
    openapi_extra=json_body(PolicyVersion),
)
@requires(Permission.TRAIN, audited=TOGETHER)
async def put_policy_version(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Set the number of weight updates so far. Groups that are now too old leave the queue and are counted.

    The reply does not wait for more than a thousand of them. None of the rest gets into a batch.
    """
    asked = parse(PolicyVersion, body)
    dropped = await services.runs.administration.set_policy_version(run, asked.policy_version, asked.rewinds)
    return model_reply(PolicyVersionReply(policy_version=asked.policy_version, dropped_groups=dropped))


@router.post(
    "/{run}/checkpoints",
    summary="Report a checkpoint of the trainer",
    response_model=RetentionState,
    responses=body_responses(errors.RunNotFound, errors.RunRewound),
    openapi_extra=json_body(Checkpoint),
)
@requires(Permission.TRAIN, audited=TOGETHER)
async def post_checkpoint(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Release the batches up to a step, because the trainer has saved a state that contains them."""
    asked = parse(Checkpoint, body)
    await services.runs.administration.get(run)
    kept = (await services.batches.retention.checkpoint(run, asked.step, asked.policy_version, asked.rewinds)).kept
    return model_reply(
        RetentionState(
            checkpoint=kept.checkpoint,
            policy_version=kept.checkpoint_version,
            rewindable_to=asked.step if kept.unkept_step is None else kept.unkept_step,
            kept_batches=kept.batches,
            kept_bytes=kept.payload_bytes,
        )
    )


@router.post(
    "/{run}/rewind",
    summary="Rewind to a checkpoint",
    response_model=Rewound,
    responses=body_responses(errors.RunNotFound, errors.RewindImpossible),
    openapi_extra=json_body(Rewind),
)
@requires(Permission.TRAIN, audited=True)
async def post_rewind(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Hand out every batch after a step again: the same groups in the same order, before any new batch."""
    asked = parse(Rewind, body)
    rewound = await services.runs.administration.rewind(run, asked.step, asked.request_id)
    return model_reply(
        Rewound(
            batches=[lease.batch_id for lease in rewound.batches],
            steps=[lease.step for lease in rewound.batches],
            quarantined=[lease.batch_id for lease in rewound.quarantined],
            quarantined_steps=[lease.step for lease in rewound.quarantined],
            policy_version=rewound.policy_version,
            rewinds=rewound.rewinds,
        )
    )


def _shown(run: str, view: QueueView | RunSummary) -> Run:
    assert view.config is not None, "only configured runs are shown"  # noqa: S101
    config = view.config.model_dump()
    batch_size = config.pop("batch_size")
    return Run(
        name=run,
        batch_size=batch_size,
        **view.policy.model_dump(),
        atropos=AtroposSettings(**config),
        step=view.step,
        policy_version=view.policy_version,
        rewinds=view.rewinds,
    )
