"""The batches of a run: taken under a lease, listed, explained, ended."""

import logging
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.codec.batch import Layout, taken_reply, waiting_reply
from app.api.deps import (
    InRun,
    NamedRun,
    ServicesDep,
    SmallBody,
    checked_run_name,
    get_services,
    parameters,
    parse,
    run_name,
    small_body,
)
from app.api.http.client_connection import end_of_waiting
from app.api.http.negotiation import accepts_binary
from app.api.http.openapi import (
    Responses,
    binary,
    body_responses,
    json_body,
    read_responses,
    response_headers,
    write_responses,
)
from app.api.http.replies import model_reply
from app.api.http.routing import DirectNativeRoute, NativeRoute
from app.api.wire.explanation import explanation
from app.api.wire.rank_query import documented_query, query_of, seat_of
from app.core import errors
from app.core.batches.leases import Lease, LeaseState
from app.services.batches.request import BatchRequest
from lachesis.wire.atropos import MAX_BATCH_SIZE
from lachesis.wire.batches import (
    Ack,
    Explanation,
    Extend,
    LeasedBatch,
    LeasedBatches,
    LeaseEnd,
    Nack,
    TakeBatch,
    TakenBatch,
)
from lachesis.wire.runs import YEAR_S

_MISSING = (errors.RunNotFound, errors.BatchNotFound)
_REFUSALS = (
    errors.RunNotFound,
    errors.NotAcceptable,
    errors.RunArchived,
    errors.RunRewound,
    errors.RanksDisagree,
    errors.StepMismatch,
    errors.SequenceTooLong,
)
_TAKEN = response_headers(
    201,
    Lachesis_Batch="The batch's id.",
    Lachesis_Step="Its step.",
    Lachesis_Imbalance="For a batch divided between ranks: the largest load over the mean load, minus 1.",
)
_WAITING = response_headers(
    204,
    Lachesis_Waiting="Why there is no batch: the reason as in `explain`, and a sentence.",
    Lachesis_Expected_S="Seconds until a batch is expected at the present arrival rates; absent if unknown.",
)
_TAKE: Responses = body_responses(*_REFUSALS) | {
    201: _TAKEN[201] | {"content": binary("The batch as one file of columns.")},
    204: _WAITING[204] | {"description": "No batch in time."},
}
_ENDING = body_responses(*_MISSING, errors.LeaseLost)

handing = APIRouter(
    prefix="/v1/runs/{run}/batches",
    tags=["batches"],
    route_class=DirectNativeRoute,
    dependencies=[Depends(checked_run_name)],
)
router = APIRouter(prefix="/v1/runs/{run}/batches", tags=["batches"], route_class=NativeRoute)

log = logging.getLogger("lachesis.api")

BatchId = Annotated[str, Path(pattern="^[0-9a-f]{1,64}$", description="The batch's id.")]


async def documented_batch_id(batch: BatchId) -> str:
    """Declare a batch's id for OpenAPI. A `DirectNativeRoute` never calls this."""
    return batch


class _OfBatch(InRun):
    """The path of a request about a batch."""

    batch: BatchId


@handing.post(
    "",
    summary="Take the next batch",
    status_code=201,
    response_model=TakenBatch,
    responses=_TAKE,
    openapi_extra=json_body(TakeBatch, required=False),
    dependencies=[Depends(documented_query)],
)
async def take_batch(request: Request) -> Response:
    """Take a batch of exactly `batch_size` sequences under a lease. 204 with the reason if there is none in time.

    A repeated request id gets the same batch under the same lease while the lease is held. With `rank` and `world_size`
    the batch is divided between the ranks of a trainer. Each rank gets its own shard of the same batch, and gets it
    again until it has acknowledged it.
    """
    services = await get_services(request)
    run, query = await run_name(request), query_of(request)
    wait_s = query.wait_s
    body = await small_body(request, services)
    asked = parse(TakeBatch, body) if body else TakeBatch()
    layout = Layout(run) if accepts_binary(request) else None
    begin = None if layout is None else layout.begin
    seat = seat_of(query)
    batch_request = BatchRequest(asked.request_id or "", asked.lease_s, asked.trainer or "", seat, asked.rewinds, begin)
    answer = await services.batches.long_poll.take(run, batch_request, wait_s, end_of_waiting(request.scope))
    if answer.not_ready is not None:
        if wait_s > 0:
            who, why = asked.trainer or "unnamed", answer.not_ready.detail
            log.debug("run %s: no batch within %g s for %r: %s", run, wait_s, who, why)
        return waiting_reply(answer.not_ready, services.batches.diagnostics.expected_s(run, answer.not_ready))
    assert answer.batch is not None, "an answer has one or the other"  # noqa: S101
    return await taken_reply(request, services.batches.dispatch, run, answer.batch, layout)


@router.get(
    "",
    summary="List leased batches",
    response_model=LeasedBatches,
    responses=read_responses(errors.RunNotFound),
)
async def list_batches(run: NamedRun, services: ServicesDep) -> Response:
    """List the batches that are held, returned or quarantined, by step."""
    view = await services.runs.administration.get(run)
    return model_reply(LeasedBatches(batches=[_leased(lease, view.clock_ms) for lease in view.leases]))


@router.get(
    "/explain",
    summary="Explain why there is no batch",
    response_model=Explanation,
    responses=read_responses(errors.RunNotFound),
)
async def explain(
    run: NamedRun,
    services: ServicesDep,
    batch_size: Annotated[
        int | None, Query(ge=1, le=MAX_BATCH_SIZE, description="Try this batch size instead of the run's.")
    ] = None,
    relax_after_s: Annotated[
        float | None, Query(ge=0, le=YEAR_S, description="Try this wait instead of the run's, seconds.")
    ] = None,
) -> Response:
    """Return whether a batch would form now. If not: what is missing, from which environment, and when to expect it."""
    tried = {"batch_size": batch_size, "relax_after_s": relax_after_s}
    instead = {name: value for name, value in tried.items() if value is not None}
    await services.runs.administration.get(run)
    reason = await services.batches.diagnostics.of(run, instead)
    return model_reply(explanation(reason, round(services.settings.environment_ttl_s * 1000), instead))


@handing.post(
    "/{batch}/ack",
    summary="Acknowledge a batch",
    response_model=LeaseEnd,
    responses=_ENDING,
    openapi_extra=json_body(Ack),
    dependencies=[Depends(documented_batch_id)],
)
async def ack(request: Request) -> Response:
    """End a batch: its groups are delivered. The request may be repeated.

    A divided batch ends when every rank has acknowledged its shard, or when rank 0 has, as the ranks agreed.
    """
    services = await get_services(request)
    path = parameters(_OfBatch, request.path_params, "path")
    asked = parse(Ack, await small_body(request, services))
    awaited = await services.batches.leases.acknowledge(path.run, path.batch, asked.lease, asked.rank)
    state: Literal["held", "acknowledged"] = "held" if awaited else "acknowledged"
    return model_reply(LeaseEnd(batch=path.batch, state=state, awaited_ranks=list(awaited)))


@router.post(
    "/{batch}/nack",
    summary="Give a batch back",
    response_model=LeaseEnd,
    responses=_ENDING,
    openapi_extra=json_body(Nack),
)
async def nack(run: NamedRun, batch: BatchId, services: ServicesDep, body: SmallBody) -> Response:
    """Give a batch back, also a quarantined one. Its groups go to the front of their lanes, in their order."""
    asked = parse(Nack, body)
    await services.batches.leases.give_back(run, batch, asked.lease, asked.reason)
    return model_reply(LeaseEnd(batch=batch, state="given_back"))


@router.post(
    "/{batch}/extend",
    summary="Hold a batch longer",
    response_model=LeaseEnd,
    responses=_ENDING,
    openapi_extra=json_body(Extend),
)
async def extend(run: NamedRun, batch: BatchId, services: ServicesDep, body: SmallBody) -> Response:
    """Extend a lease, counted from now. A lease never gets shorter."""
    asked = parse(Extend, body)
    lease_s = await services.batches.leases.extend(run, batch, asked.lease, asked.lease_s)
    return model_reply(LeaseEnd(batch=batch, state="held", lease_s=lease_s))


@router.delete(
    "/{batch}",
    summary="Drop a quarantined batch",
    status_code=204,
    responses=write_responses(*_MISSING, errors.BatchInUse),
)
async def drop(run: NamedRun, batch: BatchId, services: ServicesDep) -> Response:
    """Drop a quarantined batch. Its groups are counted as dropped."""
    await services.batches.leases.discard(run, batch)
    return Response(status_code=204)


def _leased(lease: Lease, clock_ms: int) -> LeasedBatch:
    return LeasedBatch.model_validate(
        {
            "batch": lease.batch_id,
            "step": lease.step,
            "state": lease.state.value,
            "delivery_count": lease.delivery_count,
            "rewound": lease.rewound > 0,
            "expires_s": max(0, lease.deadline_ms - clock_ms) / 1000 if lease.state is LeaseState.HELD else None,
            "trainer": lease.trainer or None,
            "groups": sum(groups for _, groups, _ in lease.contents),
            "size": sum(sequences for _, _, sequences in lease.contents),
            "replayed_groups": sum(groups for _, groups, _ in lease.replayed),
            **_ranks(lease),
        }
    )


def _ranks(lease: Lease) -> dict[str, Any]:
    if lease.sharding is None:
        return {}
    sharding = lease.sharding
    return {
        "world_size": sharding.spec.world_size,
        "taken_by": sharding.taken,
        "acknowledged_by": sharding.acknowledged,
    }
