"""The replay buffer of a run: fragments, samples, settings, chunks, snapshots."""

import logging
import uuid
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from app.api.codec.replay_sample import fragments_reply, shown_reply, taken_reply, waiting_reply
from app.api.deps import NamedRun, ServicesDep, SmallBody, SubmittedBody, parse
from app.api.http.client_connection import end_of_waiting
from app.api.http.negotiation import accepts_binary, sends_binary
from app.api.http.openapi import (
    Responses,
    binary,
    body_responses,
    json_body,
    json_or_binary_body,
    read_responses,
    response_headers,
    write_responses,
)
from app.api.http.replies import large_json_reply, model_reply
from app.api.http.routing import RunRoute
from app.api.wire.replay import changes_of, shown_chunks, shown_snapshot, shown_state
from app.core import errors
from app.core.errors import InvalidField
from app.core.replay.rate_limiter import LimiterBlock
from app.core.replay.sampling import SamplingStrategy
from app.services.replay.buffer import SortedBy
from app.services.replay.request import ReplaySampleRequest
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.fragments import (
    FRAGMENT_ID,
    FetchFragments,
    FragmentReceipts,
    SubmittedFragment,
    SubmittedFragments,
)
from lachesis.wire.groups import SAFETENSORS
from lachesis.wire.ranks import MAX_WAIT_S
from lachesis.wire.replay import (
    Chunks,
    ChunksDeleted,
    Priorities,
    PrioritiesSet,
    RateLimiter,
    ReplayChange,
    ReplaySettings,
    ReplayState,
    SessionSet,
    SessionStart,
)
from lachesis.wire.samples import AckSample, ExtendSample, NackSample, SampleEnd, SampleInfo, TakeSample
from lachesis.wire.snapshots import SNAPSHOT_NAME, ReplaySnapshot, RestoreSnapshot, Snapshots, TakeSnapshot

log = logging.getLogger("lachesis.api")

_MISSING = (errors.RunNotFound, errors.ReplayNotFound)
_SAMPLE_MISSING = (*_MISSING, errors.SampleNotFound, errors.FragmentNotFound, errors.NotAcceptable)
_BLOBS = "One fragment's blob, or a frame of them (docs/how-to/replay.md)."
_BLOB_CONTENT = {"content": binary(_BLOBS)}
_SAMPLE_HEADERS = {"Lachesis_Sample": "The sample's id."}

_READ = read_responses(*_MISSING)
_WRITE = write_responses(*_MISSING)
_BODY = body_responses(*_MISSING)
_INSERT: Responses = body_responses(
    *_MISSING, errors.UnsupportedMediaType, errors.FragmentExists, errors.ReplayBlocked
) | response_headers(201, Idempotent_Replay="`true` if every fragment was there already: nothing was stored.")
_TAKE_SAMPLE: Responses = body_responses(*_SAMPLE_MISSING) | {
    201: response_headers(201, **_SAMPLE_HEADERS)[201] | _BLOB_CONTENT,
    204: response_headers(204, Lachesis_Waiting="What it waits for, and a sentence.")[204]
    | {"description": "No sample in time."},
}
_GET_SAMPLE: Responses = read_responses(*_SAMPLE_MISSING) | {
    200: response_headers(200, **_SAMPLE_HEADERS)[200] | _BLOB_CONTENT
}
_END_SAMPLE = body_responses(*_MISSING, errors.SampleNotFound, errors.LeaseLost)

_Whole = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]
SampleId = Annotated[str, Path(pattern="^[0-9a-f]{1,64}$", description="The sample's id.")]
SnapshotName = Annotated[str, Path(pattern=f"^{SNAPSHOT_NAME}$", description="The snapshot's name.")]
SortBy = Annotated[
    SortedBy | None,
    Query(
        description="By order of insertion, weight, version or uses. What is `reserved` is sorted by version, what is "
        "`archived` by order of insertion, and what was retired and is in samples still by nothing."
    ),
]
OfWorker = Annotated[str | None, Query(max_length=128, description="Only those of this worker.")]
OfVersion = Annotated[_Whole, Query(description="Only those of this policy version.")]
OfSession = Annotated[_Whole, Query(description="Only those of this session.")]

# Routes are tried in order, so the ones that are called most come first.
router = APIRouter(prefix="/v1/runs/{run}/replay", tags=["replay"], route_class=RunRoute)


# Fragments


@router.post(
    "/fragments",
    summary="Send fragments",
    status_code=201,
    response_model=FragmentReceipts,
    responses=_INSERT,
    openapi_extra=json_or_binary_body(SubmittedFragment, SubmittedFragments, description=_BLOBS),
)
async def post_fragments(
    run: NamedRun,
    request: Request,
    wait_s: Annotated[
        float, Query(ge=0, le=MAX_WAIT_S, description="How long to wait while the rate limiter holds back, seconds.")
    ] = 0.0,
) -> Response:
    """Store one fragment of a worker or many, all or none. Once this is answered they survive any crash.

    A fragment is known by its worker, session and number: sent again, it is stored once.
    """
    async with SubmittedBody(request) as (_, services, body):
        if sends_binary(request, "fragments"):
            fragments = await services.decoder.fragments(body)
        else:
            fragments = await services.decoder.fragments_json(body)
        stop = end_of_waiting(request.scope)
        receipts = await services.replay.insertion.insert(run, fragments, wait_s, stop)
    said = [{"number": one.number, "status": one.outcome, "fragment": one.fragment_id} for one in receipts]
    headers = {"Idempotent-Replay": "true"} if all(one.outcome == "repeated" for one in receipts) else {}
    return Response(orjson.dumps({"fragments": said}), 201, headers, "application/json")


@router.get(
    "/fragments/{fragment}",
    summary="Read a fragment",
    responses=read_responses(*_MISSING, errors.FragmentNotFound) | {200: _BLOB_CONTENT},
    response_class=Response,
)
async def get_fragment(
    run: NamedRun,
    fragment: Annotated[str, Path(pattern=f"^{FRAGMENT_ID}$", description="The fragment's id.")],
    services: ServicesDep,
) -> Response:
    """Answer a fragment's blob as it came in."""
    ((_, payload),) = await services.replay.buffers.fragments(run, [fragment])
    return Response(payload, media_type=SAFETENSORS)


@router.post(
    "/fragments/fetch",
    summary="Read many fragments",
    responses=body_responses(*_MISSING, errors.FragmentNotFound) | {200: _BLOB_CONTENT},
    openapi_extra=json_body(FetchFragments),
    response_class=Response,
)
async def fetch_fragments(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Answer a frame of fragments' blobs, in the order asked for; its metadata `fragments` says what they are."""
    asked = parse(FetchFragments, body).fragments
    return fragments_reply(await services.replay.buffers.fragments(run, asked))


# Samples

_PARAMETERS = ("alpha", "beta", "half_life_chunks")


@router.post(
    "/samples",
    summary="Take a sample",
    status_code=201,
    response_model=SampleInfo,
    responses=_TAKE_SAMPLE,
    openapi_extra=json_body(TakeSample),
)
async def take_sample(
    run: NamedRun,
    services: ServicesDep,
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
    sample = await services.replay.samples.take(run, sample_request, wait_s, end_of_waiting(request.scope))
    if isinstance(sample, LimiterBlock):
        if wait_s > 0:
            log.debug(
                "run %s: no sample within %g s for %r: %s", run, wait_s, asked.trainer or "unnamed", sample.detail
            )
        return waiting_reply(sample)
    return await taken_reply(request, services.replay.buffers, services.replay.samples, run, sample, binary=binary)


@router.get("/samples/{sample}", summary="Look at a sample", response_model=SampleInfo, responses=_GET_SAMPLE)
async def get_sample(run: NamedRun, sample: SampleId, services: ServicesDep, request: Request) -> Response:
    """Show a sample that is held again, to every rank and to a trainer that came back: the same records in order."""
    binary = accepts_binary(request)
    return await shown_reply(
        request, services.replay.buffers, run, await services.replay.samples.show(run, sample), binary=binary
    )


@router.post(
    "/samples/{sample}/ack",
    summary="It was trained on",
    response_model=SampleEnd,
    responses=_END_SAMPLE,
    openapi_extra=json_body(AckSample),
)
async def ack_sample(run: NamedRun, sample: SampleId, services: ServicesDep, body: SmallBody) -> Response:
    """End a sample: its uses count. The same again is answered the same."""
    await services.replay.samples.acknowledge(run, sample, parse(AckSample, body).lease)
    return model_reply(SampleEnd(sample=sample, state="acknowledged"))


@router.post(
    "/samples/{sample}/nack",
    summary="Give it back",
    response_model=SampleEnd,
    responses=_END_SAMPLE,
    openapi_extra=json_body(NackSample),
)
async def nack_sample(run: NamedRun, sample: SampleId, services: ServicesDep, body: SmallBody) -> Response:
    """Give a sample back: its uses do not count."""
    asked = parse(NackSample, body)
    await services.replay.samples.give_back(run, sample, asked.lease, asked.reason)
    return model_reply(SampleEnd(sample=sample, state="given_back"))


@router.post(
    "/samples/{sample}/extend",
    summary="Hold it longer",
    response_model=SampleEnd,
    responses=_END_SAMPLE,
    openapi_extra=json_body(ExtendSample),
)
async def extend_sample(run: NamedRun, sample: SampleId, services: ServicesDep, body: SmallBody) -> Response:
    """Hold a sample longer, counted from now."""
    asked = parse(ExtendSample, body)
    lease_s = await services.replay.samples.extend(run, sample, asked.lease, asked.lease_s)
    return model_reply(SampleEnd(sample=sample, state="held", lease_s=lease_s))


def _sampling(asked: TakeSample) -> dict[str, Any]:
    given: dict[str, Any] = {name: getattr(asked, name) for name in _PARAMETERS}
    given["strategy"] = asked.strategy and SamplingStrategy(asked.strategy)
    return {name: value for name, value in given.items() if value is not None}


# The buffer


@router.put(
    "",
    summary="Set up a buffer",
    response_model=ReplayState,
    responses=body_responses(errors.RunNotFound),
    openapi_extra=json_body(ReplaySettings),
)
async def put_replay(
    run: NamedRun,
    services: ServicesDep,
    body: SmallBody,
    *,
    if_absent: Annotated[bool, Query(description="One that is there stays as it is, and is answered.")] = False,
) -> Response:
    """Give the run a replay buffer with these settings, or set all of them where it has one; what is there stays."""
    asked = parse(ReplaySettings, body)
    changes = changes_of(asked, frozenset(ReplaySettings.model_fields))
    return await _configured(services, run, changes, keep=if_absent)


@router.patch(
    "", summary="Change a buffer", response_model=ReplayState, responses=_BODY, openapi_extra=json_body(ReplayChange)
)
async def change_replay(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Change a buffer while it goes on: what the body names."""
    asked = parse(ReplayChange, body)
    await services.replay.buffers.state(run)
    return await _configured(services, run, changes_of(asked, frozenset(asked.model_fields_set)))


@router.get("", summary="How a buffer is doing", response_model=ReplayState, responses=_READ)
async def get_replay(run: NamedRun, services: ServicesDep, request: Request) -> Response:
    """Answer settings, sizes, histograms, what blocks whom, and who sends what."""
    state = shown_state(await services.replay.buffers.state(run))
    return await large_json_reply(request, state.model_dump_json().encode())


@router.delete("", summary="Remove a buffer", status_code=204, responses=_WRITE)
async def delete_replay(run: NamedRun, services: ServicesDep) -> Response:
    """Remove the buffer with its settings, all it holds, and its snapshots. The run goes on; samples have ended."""
    await services.replay.snapshots.delete_buffer(run)
    return Response(status_code=204)


@router.put(
    "/session",
    summary="Begin a session",
    response_model=SessionSet,
    responses=_BODY,
    openapi_extra=json_body(SessionStart),
)
async def put_session(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Begin a training attempt: chunks of former ones are retired, and kept for inspection until they are evicted."""
    session = parse(SessionStart, body).session
    return model_reply(
        SessionSet(session=session, retired_chunks=await services.replay.buffers.set_session(run, session))
    )


@router.patch(
    "/priorities",
    summary="Set priorities",
    response_model=PrioritiesSet,
    responses=_BODY,
    openapi_extra=json_body(Priorities),
)
async def patch_priorities(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Set priorities of chunks. Those that are not there any more are named, and passed over."""
    priorities = parse(Priorities, body).priorities
    there = await services.replay.buffers.update_priorities(run, priorities)
    return model_reply(PrioritiesSet(updated=len(there), missing=sorted(priorities.keys() - set(there))))


@router.get("/chunks", summary="Look at chunks", response_model=Chunks, responses=_READ)
async def list_chunks(
    run: NamedRun,
    services: ServicesDep,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most chunks on the page.")] = 100,
    cursor: Annotated[str | None, Query(pattern="^[0-9]{1,18}$", description="Of the page before.")] = None,
    sort: SortBy = None,
    descending: Annotated[bool, Query(description="The largest first.")] = False,
    place: Annotated[str, Query(max_length=32, description="`sampleable`, `reserved` or `archived`.")] = "sampleable",
    worker: OfWorker = None,
    session: OfSession = None,
    version: OfVersion = None,
) -> Response:
    """Answer chunks, page by page."""
    page = await services.replay.buffers.chunks(
        run,
        limit=limit,
        cursor=cursor,
        sort=sort,
        descending=descending,
        place=place,
        worker=worker,
        session=session,
        version=version,
    )
    return await large_json_reply(request, shown_chunks(page).model_dump_json().encode())


@router.delete("/chunks", summary="Retire chunks", response_model=ChunksDeleted, responses=_WRITE)
async def delete_chunks(
    run: NamedRun,
    services: ServicesDep,
    worker: OfWorker = None,
    session: OfSession = None,
    version: OfVersion = None,
    below_version: Annotated[_Whole, Query(description="Only those of policy versions below this.")] = None,
) -> Response:
    """Retire the chunks that are of all that is named; without a name, all. Samples that hold them keep them."""
    retired = await services.replay.buffers.delete_chunks(
        run, worker=worker, session=session, version=version, below_version=below_version
    )
    return model_reply(ChunksDeleted(retired_chunks=retired))


async def _configured(services: ServicesDep, run: str, changes: dict[str, Any], *, keep: bool = False) -> Response:
    try:
        return model_reply(shown_state(await services.replay.buffers.configure(run, changes, keep=keep)))
    except InvalidField as error:
        if error.location and error.location[0] in RateLimiter.model_fields:
            raise InvalidField(error.message, ("limiter", *error.location)) from None
        raise


# Snapshots


@router.post(
    "/snapshots",
    summary="Take a snapshot",
    status_code=201,
    response_model=ReplaySnapshot,
    responses=_BODY,
    openapi_extra=json_body(TakeSnapshot),
)
async def take_snapshot(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Note the buffer as it is now. The oldest snapshot goes where there are `keep_snapshots`.

    Payloads are not copied; they stay as long as a snapshot names them.
    """
    name = parse(TakeSnapshot, body).name or uuid.uuid4().hex
    taken = await services.replay.snapshots.take(run, name)
    return model_reply(shown_snapshot(taken, taken.taken_ms), 201)


@router.get("/snapshots", summary="List snapshots", response_model=Snapshots, responses=_READ)
async def list_snapshots(run: NamedRun, services: ServicesDep) -> Response:
    """Answer the snapshots there are, oldest first."""
    there, clock_ms = await services.replay.snapshots.all(run)
    return model_reply(Snapshots(snapshots=[shown_snapshot(one, clock_ms) for one in there]))


@router.post(
    "/restore",
    summary="Go back to a snapshot",
    response_model=ReplayState,
    responses=body_responses(*_MISSING, errors.SnapshotNotFound),
    openapi_extra=json_body(RestoreSnapshot),
)
async def restore_snapshot(run: NamedRun, services: ServicesDep, body: SmallBody, request: Request) -> Response:
    """Make the buffer what it was, settings included; then the staleness rule is applied with the version in force.

    Samples held when it was taken count as given back, and those held now have ended. The snapshot stays.
    """
    await services.replay.snapshots.restore(run, parse(RestoreSnapshot, body).name)
    state = shown_state(await services.replay.buffers.state(run))
    return await large_json_reply(request, state.model_dump_json().encode())


@router.delete(
    "/snapshots/{snapshot}",
    summary="Let a snapshot go",
    status_code=204,
    responses=write_responses(*_MISSING, errors.SnapshotNotFound),
)
async def delete_snapshot(run: NamedRun, snapshot: SnapshotName, services: ServicesDep) -> Response:
    """Remove a snapshot; payloads that only it named are removed with it."""
    await services.replay.snapshots.drop(run, snapshot)
    return Response(status_code=204)
