"""The samples of a replay buffer."""

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from app.api.codec import replay_sample as codec
from app.api.deps import NamedRun, ServicesDep, SmallBody, parse
from app.api.http.access.control import Waiting
from app.api.http.negotiation import accepts_binary
from app.api.http.openapi import Responses, binary, body_responses, json_body, read_responses, response_headers
from app.api.http.replies import model_reply
from app.api.http.routing import RunRoute, requires
from app.core.access.permissions import Permission
from app.core.replay.rate_limiter import LimiterBlock
from app.services.replay.request import ReplaySampleRequest
from lachesis.wire import errors
from lachesis.wire.limits import MAX_WAIT_S
from lachesis.wire.replay import Sampling
from lachesis.wire.samples import AckSample, ExtendSample, NackSample, SampleEnd, SampleInfo, TakeSample

log = logging.getLogger("lachesis.api")

_MISSING = (errors.RunNotFound, errors.ReplayNotFound)
_SAMPLE_MISSING = (*_MISSING, errors.SampleNotFound, errors.FragmentNotFound, errors.NotAcceptable)
_BLOB_CONTENT = {"content": binary(codec.BLOBS)}
_SAMPLE_HEADERS = {"Lachesis_Sample": "The sample's id."}

_TAKE_SAMPLE: Responses = body_responses(*_SAMPLE_MISSING) | {
    201: response_headers(201, **_SAMPLE_HEADERS)[201] | _BLOB_CONTENT,
    204: response_headers(204, Lachesis_Waiting="What the sample waits for, and a sentence.")[204]
    | {"description": "No sample in time."},
}
_GET_SAMPLE: Responses = read_responses(*_SAMPLE_MISSING) | {
    200: response_headers(200, **_SAMPLE_HEADERS)[200] | _BLOB_CONTENT
}
_END_SAMPLE = body_responses(*_MISSING, errors.SampleNotFound, errors.LeaseLost)

SampleId = Annotated[str, Path(pattern="^[0-9a-f]{1,64}$", description="The sample's id.")]

# Routes are tried in order, so the ones that are called most come first.
router = APIRouter(prefix="/v1/runs/{run}/replay", tags=["replay"], route_class=RunRoute)


@router.post(
    "/samples",
    summary="Take a sample",
    status_code=201,
    response_model=SampleInfo,
    responses=_TAKE_SAMPLE,
    openapi_extra=json_body(TakeSample),
)
@requires(Permission.TRAIN)
async def take_sample(
    run: NamedRun,
    services: ServicesDep,
    request: Request,
    body: SmallBody,
    wait_s: Annotated[
        float, Query(ge=0, le=MAX_WAIT_S, description="Maximum time to wait for a sample, seconds.")
    ] = 0.0,
) -> Response:
    """Take a sample of distinct chunks under a lease. If no sample comes in time: 204 with the reason.

    A binary reply has the payloads. A JSON reply has the records alone. Read payloads by the ids of their fragments. A
    repeated request id gets the same sample while the lease lasts.
    """
    asked = parse(TakeSample, body)
    sample_request = ReplaySampleRequest(
        num_chunks=asked.num_chunks,
        num_fragments=asked.num_fragments,
        sampling=_sampling(asked),
        request_id=asked.request_id or "",
        lease_s=asked.lease_s,
        trainer=asked.trainer or "",
    )
    binary = accepts_binary(request)
    with Waiting(request) as waiting:
        sample = await services.replay.samples.take(run, sample_request, wait_s, waiting.ended)
    if isinstance(sample, LimiterBlock):
        waiting.check()
        if wait_s > 0:
            log.debug(
                "run %s: no sample within %g s for %r: %s", run, wait_s, asked.trainer or "unnamed", sample.detail
            )
        return codec.no_sample_reply(sample)
    return await codec.taken_sample_reply(
        request, services.replay.buffers, services.replay.samples, run, sample, binary=binary
    )


@router.get("/samples/{sample}", summary="Get a sample", response_model=SampleInfo, responses=_GET_SAMPLE)
@requires(Permission.TRAIN)
async def get_sample(run: NamedRun, sample: SampleId, services: ServicesDep, request: Request) -> Response:
    """Return a held sample again, for other ranks or a restarted trainer: the same records in the same order."""
    binary = accepts_binary(request)
    return await codec.shown_reply(
        request, services.replay.buffers, run, await services.replay.samples.show(run, sample), binary=binary
    )


@router.post(
    "/samples/{sample}/ack",
    summary="Acknowledge a sample",
    response_model=SampleEnd,
    responses=_END_SAMPLE,
    openapi_extra=json_body(AckSample),
)
@requires(Permission.TRAIN)
async def ack_sample(run: NamedRun, sample: SampleId, services: ServicesDep, body: SmallBody) -> Response:
    """End a sample: its uses count. The request may be repeated."""
    await services.replay.samples.acknowledge(run, sample, parse(AckSample, body).lease)
    return model_reply(SampleEnd(sample=sample, state="acknowledged"))


@router.post(
    "/samples/{sample}/nack",
    summary="Give a sample back",
    response_model=SampleEnd,
    responses=_END_SAMPLE,
    openapi_extra=json_body(NackSample),
)
@requires(Permission.TRAIN)
async def nack_sample(run: NamedRun, sample: SampleId, services: ServicesDep, body: SmallBody) -> Response:
    """Give a sample back: its uses do not count."""
    asked = parse(NackSample, body)
    await services.replay.samples.give_back(run, sample, asked.lease, asked.reason)
    return model_reply(SampleEnd(sample=sample, state="given_back"))


@router.post(
    "/samples/{sample}/extend",
    summary="Hold a sample longer",
    response_model=SampleEnd,
    responses=_END_SAMPLE,
    openapi_extra=json_body(ExtendSample),
)
@requires(Permission.TRAIN)
async def extend_sample(run: NamedRun, sample: SampleId, services: ServicesDep, body: SmallBody) -> Response:
    """Extend a sample's lease, counted from now."""
    asked = parse(ExtendSample, body)
    lease_s = await services.replay.samples.extend(run, sample, asked.lease, asked.lease_s)
    return model_reply(SampleEnd(sample=sample, state="held", lease_s=lease_s))


def _sampling(asked: TakeSample) -> dict[str, Any]:
    return {name: value for name in Sampling.model_fields if (value := getattr(asked, name)) is not None}
