"""Samples of a replay buffer on the native API: taken, shown again, ended."""

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from app.api.codec.batch import accepts_binary
from app.api.codec.replay_sample import shown_reply, taken_reply, waiting_reply
from app.api.deps import Found, NamedRun, SmallBody, parse
from app.api.http.client_connection import end_of_waiting
from app.api.http.replay_route import ReplayRoute
from app.api.http.replies import model_reply
from app.api.routes import replay_docs as docs
from app.api.routes.body_docs import takes
from app.core.replay.rate_limiter import Blocked
from app.core.replay.sampling import Strategy
from app.services.replay.request import ReplaySampleRequest
from lachesis.wire.ranks import MAX_WAIT_S
from lachesis.wire.samples import AckSample, ExtendSample, NackSample, SampleEnd, SampleInfo, TakeSample

router = APIRouter(prefix="/v1/runs/{run}/replay/samples", tags=["replay"], route_class=ReplayRoute)

log = logging.getLogger("lachesis.api")

SampleId = Annotated[str, Path(pattern="^[0-9a-f]{1,64}$", description="The sample's id.")]

_PARAMETERS = ("alpha", "beta", "half_life_chunks")


@router.post(
    "",
    summary="Take a sample",
    status_code=201,
    response_model=SampleInfo,
    responses=docs.TAKES_SAMPLE,
    openapi_extra=takes(TakeSample),
)
async def take_sample(
    run: NamedRun,
    found: Found,
    request: Request,
    body: SmallBody,
    wait_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="How long to wait for a sample, seconds.")] = 0.0,
) -> Response:
    """Take exactly so many chunks under a lease, none twice, or 204 with the reason when time is up.

    In binary the reply has their payloads, in JSON the records alone, and payloads are read by their fragments' ids. A
    repeated request id gets the same sample, while that is held.
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
    sample = await found.replay_samples.take(run, sample_request, wait_s, end_of_waiting(request.scope))
    if isinstance(sample, Blocked):
        if wait_s > 0:
            log.debug(
                "run %s: no sample within %g s for %r: %s", run, wait_s, asked.trainer or "unnamed", sample.detail
            )
        return waiting_reply(sample)
    return await taken_reply(request, found.replay, found.replay_samples, run, sample, binary=binary)


@router.get("/{sample}", summary="Look at a sample", response_model=SampleInfo, responses=docs.SHOWS_SAMPLE)
async def get_sample(run: NamedRun, sample: SampleId, found: Found, request: Request) -> Response:
    """Show a sample that is held again, to every rank and to a trainer that came back: the same records in order."""
    binary = accepts_binary(request)
    return await shown_reply(request, found.replay, run, await found.replay_samples.show(run, sample), binary=binary)


@router.post(
    "/{sample}/ack",
    summary="It was trained on",
    response_model=SampleEnd,
    responses=docs.ENDS_SAMPLE,
    openapi_extra=takes(AckSample),
)
async def ack_sample(run: NamedRun, sample: SampleId, found: Found, body: SmallBody) -> Response:
    """End a sample: its uses count. The same again is answered the same."""
    await found.replay_samples.acknowledge(run, sample, parse(AckSample, body).lease)
    return model_reply(SampleEnd(sample=sample, state="acknowledged"))


@router.post(
    "/{sample}/nack",
    summary="Give it back",
    response_model=SampleEnd,
    responses=docs.ENDS_SAMPLE,
    openapi_extra=takes(NackSample),
)
async def nack_sample(run: NamedRun, sample: SampleId, found: Found, body: SmallBody) -> Response:
    """Give a sample back: its uses do not count."""
    asked = parse(NackSample, body)
    await found.replay_samples.give_back(run, sample, asked.lease, asked.reason)
    return model_reply(SampleEnd(sample=sample, state="given_back"))


@router.post(
    "/{sample}/extend",
    summary="Hold it longer",
    response_model=SampleEnd,
    responses=docs.ENDS_SAMPLE,
    openapi_extra=takes(ExtendSample),
)
async def extend_sample(run: NamedRun, sample: SampleId, found: Found, body: SmallBody) -> Response:
    """Hold a sample longer, counted from now."""
    asked = parse(ExtendSample, body)
    lease_s = await found.replay_samples.extend(run, sample, asked.lease, asked.lease_s)
    return model_reply(SampleEnd(sample=sample, state="held", lease_s=lease_s))


def _sampling(asked: TakeSample) -> dict[str, Any]:
    given: dict[str, Any] = {name: getattr(asked, name) for name in _PARAMETERS}
    given["strategy"] = asked.strategy and Strategy(asked.strategy)
    return {name: value for name, value in given.items() if value is not None}
