"""The batches of a run: taken under a lease, listed, explained, ended."""

import logging
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.codec.batch import Layout, no_batch_reply, taken_batch_reply
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
from app.api.http.access.control import Waiting
from app.api.http.negotiation import accepts_binary, accepts_compact
from app.api.http.openapi import (
    Responses,
    binary,
    body_responses,
    json_body,
    read_responses,
    response_headers,
    write_responses,
)
from app.api.http.replies import large_model_reply, model_reply
from app.api.http.routing import DirectNativeRoute, NativeRoute, requires
from app.api.http.tracing import span_of, spans
from app.api.wire.batches import leased_batches, shown_batch, shown_batches
from app.api.wire.explanation import explanation
from app.api.wire.rank_query import documented_query, query_of, shard_request_of
from app.api.wire.time_query import FormedFrom, FormedTo
from app.core.access.permissions import Permission
from app.core.batches.diagnosis import is_about_queue
from app.services.batches.request import BatchRequest
from lachesis.wire import errors
from lachesis.wire.batches import (
    BATCHES_SHOWN,
    Ack,
    BatchDetails,
    Explanation,
    Extend,
    LeasedBatches,
    LeaseEnd,
    ListedBatches,
    Nack,
    TakeBatch,
    TakenBatch,
)
from lachesis.wire.limits import MAX_BATCH_SIZE
from lachesis.wire.runs import YEAR_S
from lachesis.wire.states import LeaseAnswer

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
    Lachesis_Waiting="Why there is no batch: the reason, one of those of `explain`, and a sentence.",
    Lachesis_Expected_S="Seconds until a batch is expected at the present arrival rates; absent if unknown.",
)
_TAKE: Responses = body_responses(*_REFUSALS) | {
    201: _TAKEN[201] | {"content": binary("The batch as one file of columns.")},
    204: _WAITING[204] | {"description": "No batch in time."},
}
_ENDING = body_responses(*_MISSING, errors.LeaseLost)

direct = APIRouter(
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


@direct.post(
    "",
    summary="Take the next batch",
    status_code=201,
    response_model=TakenBatch,
    responses=_TAKE,
    openapi_extra=json_body(TakeBatch, required=False),
    dependencies=[Depends(documented_query)],
)
@requires(Permission.TRAIN)
@spans("take batch")
async def take_batch(request: Request) -> Response:
    """Take a batch of exactly `batch_size` sequences under a lease. If no batch forms in time: 204 with the reason.

    A repeated request id gets the same batch under the same lease while the lease is held. With `rank` and `world_size`
    the batch is divided between the ranks of a trainer. Each rank gets its own shard of the same batch. With the same
    `after` and request id, it gets the shard again until it has acknowledged it.
    """
    services = await get_services(request)
    run, query = await run_name(request), query_of(request)
    wait_s = query.wait_s
    body = await small_body(request, services)
    asked = parse(TakeBatch, body) if body else TakeBatch()
    layout = Layout(run, compact=accepts_compact(request)) if accepts_binary(request) else None
    begin = None if layout is None else layout.begin
    request_id = asked.request_id or ""
    shard_request = shard_request_of(query, request_id)
    batch_request = BatchRequest(request_id, asked.lease_s, asked.trainer or "", shard_request, asked.rewinds, begin)
    with Waiting(request) as waiting:
        answer = await services.batches.long_poll.take(run, batch_request, wait_s, waiting.ended)
    if answer.not_ready is not None:
        waiting.check()
        why = answer.not_ready
        if wait_s > 0:
            if is_about_queue(why):
                why = why.adding(await services.environments.demand.who_must_act(run))
            log.debug("run %s: no batch within %g s for %r: %s", run, wait_s, asked.trainer or "unnamed", why.detail)
        return no_batch_reply(why, services.batches.diagnostics.expected_s(run, why))
    assert answer.batch is not None, "an answer has one or the other"  # noqa: S101
    if (span := span_of(request)) is not None:
        lease, groups = answer.batch.lease, answer.batch.groups
        await span.takes(lease.batch_id, lease.step, [one.given_id for one in groups if one.given_id is not None])
    return await taken_batch_reply(request, services.batches.dispatch, run, answer.batch, layout)


@router.get(
    "",
    summary="List leased batches",
    response_model=LeasedBatches,
    responses=read_responses(errors.RunNotFound),
)
@requires(Permission.READ)
async def list_batches(run: NamedRun, services: ServicesDep) -> Response:
    """List the batches that are held, returned or quarantined, by step."""
    view = await services.runs.administration.get(run)
    return model_reply(leased_batches(view.leases, view.clock_ms))


@router.get(
    "/explain",
    summary="Explain why there is no batch",
    response_model=Explanation,
    responses=read_responses(errors.RunNotFound),
)
@requires(Permission.READ)
async def explain(
    request: Request,
    run: NamedRun,
    services: ServicesDep,
    batch_size: Annotated[
        int | None, Query(ge=1, le=MAX_BATCH_SIZE, description="Try this batch size instead of the run's.")
    ] = None,
    relax_after_s: Annotated[
        float | None, Query(ge=0, le=YEAR_S, description="Try this `relax_after_s` instead of the run's, seconds.")
    ] = None,
) -> Response:
    """Return whether a batch would form now. If not: what is missing, from which environment, and the expected wait."""
    tried = {"batch_size": batch_size, "relax_after_s": relax_after_s}
    instead = {name: value for name, value in tried.items() if value is not None}

    async def explained() -> bytes:
        await services.runs.administration.check(run)
        reason = await services.batches.diagnostics.of(run, instead)
        return explanation(reason, instead).model_dump_json().encode()

    return await services.answers.reply(request, explained)


@router.get(
    "/recent",
    summary="List the latest batches",
    response_model=ListedBatches,
    responses=read_responses(errors.RunNotFound),
)
@requires(Permission.READ)
async def list_recent_batches(
    run: NamedRun,
    services: ServicesDep,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=128, description="Maximum number of batches on the page.")] = BATCHES_SHOWN,
    cursor: Annotated[
        str | None, Query(pattern="^[0-9a-f]{1,64}$", description="The `cursor` of the last answer.")
    ] = None,
    from_s: FormedFrom = None,
    to_s: FormedTo = None,
) -> Response:
    """Return the latest 128 batches, page by page, the newest first: what they consist of, and their state.

    Older batches that trainers hold, or that are quarantined, come last. When these were formed is not known, so a
    range of time leaves them out.
    """
    shown = shown_batches(await services.batches.listing.page(run, limit, cursor, from_s, to_s))
    return await large_model_reply(request, shown)


@router.get(
    "/{batch}",
    summary="Get a batch",
    response_model=BatchDetails,
    responses=read_responses(*_MISSING),
)
@requires(Permission.READ)
async def get_batch(run: NamedRun, batch: BatchId, services: ServicesDep, request: Request) -> Response:
    """Return one of the latest batches, and its groups while it is leased or kept."""
    shown = shown_batch(*await services.batches.listing.one(run, batch))
    return await large_model_reply(request, shown)


@direct.post(
    "/{batch}/ack",
    summary="Acknowledge a batch",
    response_model=LeaseEnd,
    responses=_ENDING,
    openapi_extra=json_body(Ack),
    dependencies=[Depends(documented_batch_id)],
)
@requires(Permission.TRAIN)
@spans("acknowledge batch")
async def ack(request: Request) -> Response:
    """End a batch: its groups are delivered. The request may be repeated.

    A divided batch ends when every rank has acknowledged its shard, or when rank 0 has, as the ranks agreed.
    """
    services = await get_services(request)
    path = parameters(_OfBatch, request.path_params, "path")
    asked = parse(Ack, await small_body(request, services))
    if (span := span_of(request)) is not None:
        await span.ends(path.batch)
    awaited = await services.batches.leases.acknowledge(path.run, path.batch, asked.lease, asked.rank)
    state: LeaseAnswer = "held" if awaited else "acknowledged"
    return model_reply(LeaseEnd(batch=path.batch, state=state, awaited_ranks=list(awaited)))


@router.post(
    "/{batch}/nack",
    summary="Give a batch back",
    response_model=LeaseEnd,
    responses=_ENDING,
    openapi_extra=json_body(Nack),
)
@requires(Permission.TRAIN)
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
@requires(Permission.TRAIN)
async def extend(run: NamedRun, batch: BatchId, services: ServicesDep, body: SmallBody) -> Response:
    """Extend a lease, counted from now. A longer lease stays as it is."""
    asked = parse(Extend, body)
    lease_s = await services.batches.leases.extend(run, batch, asked.lease, asked.lease_s)
    return model_reply(LeaseEnd(batch=batch, state="held", lease_s=lease_s))


@router.delete(
    "/{batch}",
    summary="Drop a quarantined batch",
    status_code=204,
    responses=write_responses(*_MISSING, errors.BatchInUse),
)
@requires(Permission.OPERATE)
async def drop(run: NamedRun, batch: BatchId, services: ServicesDep) -> Response:
    """Drop a quarantined batch. Its groups are counted as dropped."""
    await services.batches.leases.discard(run, batch)
    return Response(status_code=204)
