"""The replay buffer of a run: fragments, samples, settings, chunks, snapshots."""

import logging
import uuid
from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from app.api.codec import replay_sample as codec
from app.api.codec.fragments import decode_fragments, decode_fragments_json
from app.api.deps import NamedRun, ServicesDep, SmallBody, SubmittedBody, parse, parse_large
from app.api.http.access.control import Waiting, identity_of
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
from app.api.http.replies import large_model_reply, model_reply
from app.api.http.routing import RunRoute, requires
from app.api.wire.replay import shown_chunks, shown_snapshot, shown_state
from app.core.access.permissions import Permission, check_worker
from app.core.replay.rate_limiter import LimiterBlock
from app.services.replay.request import ReplaySampleRequest
from lachesis.wire import errors
from lachesis.wire.body import MAX_INTEGER, MAX_WAIT_S
from lachesis.wire.fragments import (
    FRAGMENT_ID,
    FetchFragments,
    FragmentReceipts,
    SubmittedFragment,
    SubmittedFragments,
)
from lachesis.wire.replay import (
    Chunks,
    ChunksDeleted,
    Priorities,
    PrioritiesSet,
    RateLimiter,
    ReplayChange,
    ReplayGrid,
    ReplaySettings,
    ReplayState,
    Sampling,
    SessionSet,
    SessionStart,
)
from lachesis.wire.samples import AckSample, ExtendSample, NackSample, SampleEnd, SampleInfo, TakeSample
from lachesis.wire.snapshots import SNAPSHOT_NAME, ReplaySnapshot, RestoreSnapshot, Snapshots, TakeSnapshot
from lachesis.wire.states import ChunkSorting

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
) | response_headers(201, Idempotent_Replay="`true` if the buffer had all fragments before. Nothing was stored.")
_TAKE_SAMPLE: Responses = body_responses(*_SAMPLE_MISSING) | {
    201: response_headers(201, **_SAMPLE_HEADERS)[201] | _BLOB_CONTENT,
    204: response_headers(204, Lachesis_Waiting="What the sample waits for, and a sentence.")[204]
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
    ChunkSorting | None,
    Query(
        description="By order of insertion, weight, version or uses. `reserved` chunks can be sorted by version only, "
        "`archived` chunks by order of insertion only."
    ),
]
OfWorker = Annotated[str | None, Query(max_length=128, description="Chunks of this worker.")]
OfVersion = Annotated[_Whole, Query(description="Chunks of this policy version.")]
OfSession = Annotated[_Whole, Query(description="Chunks of this session.")]

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
@requires(Permission.PRODUCE)
async def post_fragments(
    run: NamedRun,
    request: Request,
    wait_s: Annotated[
        float, Query(ge=0, le=MAX_WAIT_S, description="Maximum time to wait for the rate limiter, seconds.")
    ] = 0.0,
) -> Response:
    """Store one or more fragments, all or none. With `LACHESIS_FSYNC` `always` (default), they then survive a crash.

    A fragment is identified by its worker, session and number. A repeated fragment is stored once.
    """
    async with (sent := SubmittedBody(request)) as (_, services, body):
        if sends_binary(request, "fragments"):
            fragments = await services.decoder.binary(decode_fragments, body, request.scope)
        else:
            fragments = await services.decoder.json(decode_fragments_json, body, request.scope)
        only = identity_of(request.scope).environment
        for fragment in fragments:
            check_worker(only, fragment.worker)
        with Waiting(request) as waiting:
            receipts = await services.replay.insertion.insert(run, fragments, sent.may_wait_s(wait_s), waiting.ended)
    said = [{"number": one.number, "status": one.outcome, "fragment": one.fragment_id} for one in receipts]
    headers = {"Idempotent-Replay": "true"} if all(one.outcome == "repeated" for one in receipts) else {}
    return Response(orjson.dumps({"fragments": said}), 201, headers, "application/json")


@router.get(
    "/fragments/{fragment}",
    summary="Read a fragment",
    responses=read_responses(*_MISSING, errors.FragmentNotFound, errors.TooManyReads) | {200: _BLOB_CONTENT},
    response_class=Response,
)
@requires(Permission.READ_CONTENTS)
async def get_fragment(
    run: NamedRun,
    fragment: Annotated[str, Path(pattern=f"^{FRAGMENT_ID}$", description="The fragment's id.")],
    services: ServicesDep,
) -> Response:
    """Return a fragment's blob as it was sent.

    If replies that clients have not taken fill the memory for contents, the answer is `too_many_reads`.
    """
    async with services.contents.share() as share:
        ((found, payload),) = await codec.read_fragments(services.replay.buffers, share, run, [fragment])
        return codec.fragment_reply(found, payload, share)


@router.post(
    "/fragments/fetch",
    summary="Read many fragments",
    responses=body_responses(*_MISSING, errors.FragmentNotFound, errors.TooManyReads) | {200: _BLOB_CONTENT},
    openapi_extra=json_body(FetchFragments),
    response_class=Response,
)
@requires(Permission.READ_CONTENTS)
async def fetch_fragments(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Return a frame of fragments' blobs in the order of the request. Its metadata `fragments` describes them.

    Without room in the memory for contents, the answer is `too_many_reads`.
    """
    asked = parse(FetchFragments, body).fragments
    async with services.contents.share() as share:
        return codec.fragments_reply(await codec.read_fragments(services.replay.buffers, share, run, asked), share)


# Samples


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


# The buffer


@router.put(
    "",
    summary="Set up a buffer",
    response_model=ReplayState,
    responses=body_responses(errors.RunNotFound),
    openapi_extra=json_body(ReplaySettings),
)
@requires(Permission.SET_UP)
async def put_replay(
    run: NamedRun,
    services: ServicesDep,
    body: SmallBody,
    *,
    if_absent: Annotated[bool, Query(description="Return an existing buffer unchanged.")] = False,
) -> Response:
    """Create the run's replay buffer, or replace all settings of an existing one. Its chunks stay."""
    changes = dict(parse(ReplaySettings, body))
    return await _configured(services, run, changes, keep=if_absent)


@router.patch(
    "", summary="Change a buffer", response_model=ReplayState, responses=_BODY, openapi_extra=json_body(ReplayChange)
)
@requires(Permission.SET_UP)
async def change_replay(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Change the settings in the body. Settings that are left out stay."""
    asked = parse(ReplayChange, body)
    await services.replay.buffers.state(run)
    changes = {name: getattr(asked, name) for name in asked.model_fields_set}
    return await _configured(services, run, changes)


@router.get("", summary="Status of the buffer", response_model=ReplayState, responses=_READ)
@requires(Permission.READ)
async def get_replay(run: NamedRun, services: ServicesDep, request: Request) -> Response:
    """Return settings, sizes, histograms, what blocks inserts and samples, and the workers."""
    state = shown_state(await services.replay.buffers.state(run))
    return await large_model_reply(request, state)


@router.delete("", summary="Delete the buffer", status_code=204, responses=_WRITE)
@requires(Permission.OPERATE)
async def delete_replay(run: NamedRun, services: ServicesDep) -> Response:
    """Delete the buffer with its settings, chunks, samples and snapshots. The run stays."""
    await services.replay.snapshots.delete_buffer(run)
    return Response(status_code=204)


@router.put(
    "/session",
    summary="Begin a session",
    response_model=SessionSet,
    responses=_BODY,
    openapi_extra=json_body(SessionStart),
)
@requires(Permission.TRAIN, audited=True)
async def put_session(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Start a training attempt. Chunks of earlier attempts are archived: you can read them until they are evicted."""
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
@requires(Permission.TRAIN)
async def patch_priorities(run: NamedRun, services: ServicesDep, request: Request) -> Response:
    """Set priorities of chunks. The reply names the chunks that no longer exist."""
    priorities = (await parse_large(Priorities, request)).priorities
    there = await services.replay.buffers.update_priorities(run, priorities)
    return model_reply(PrioritiesSet(updated=len(there), missing=sorted(priorities.keys() - set(there))))


@router.get("/chunks", summary="List chunks", response_model=Chunks, responses=_READ)
@requires(Permission.READ)
async def list_chunks(
    run: NamedRun,
    services: ServicesDep,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of chunks on the page.")] = 100,
    cursor: Annotated[
        str | None, Query(pattern="^[0-9]{1,18}$", description="The `cursor` of the last answer.")
    ] = None,
    sort: SortBy = None,
    descending: Annotated[bool, Query(description="Whether the largest come first.")] = False,
    place: Annotated[str, Query(max_length=32, description="`sampleable`, `reserved` or `archived`.")] = "sampleable",
    worker: OfWorker = None,
    session: OfSession = None,
    version: OfVersion = None,
) -> Response:
    """Return chunks, page by page."""
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
    return await large_model_reply(request, shown_chunks(page))


@router.get("/grid", summary="Chunks by age and uses", response_model=ReplayGrid, responses=_READ)
@requires(Permission.READ)
async def get_grid(run: NamedRun, services: ServicesDep, request: Request) -> Response:
    """Return how many chunks have which age and uses, and their mean priority. A large buffer is sampled.

    Repeated requests look at the same places of the buffer.
    """

    async def looked() -> bytes:
        found = await services.replay.grids.of(run)
        shown = ReplayGrid(chunks=found.chunks, looked_at=found.looked_at, **asdict(found.grid))
        return shown.model_dump_json().encode()

    return await services.answers.reply(request, looked)


@router.delete("/chunks", summary="Retire chunks", response_model=ChunksDeleted, responses=_WRITE)
@requires(Permission.OPERATE)
async def delete_chunks(
    run: NamedRun,
    services: ServicesDep,
    worker: OfWorker = None,
    session: OfSession = None,
    version: OfVersion = None,
    below_version: Annotated[_Whole, Query(description="Chunks of policy versions below this.")] = None,
) -> Response:
    """Retire the chunks that match every criterion, or all chunks. Samples keep the chunks that they hold."""
    retired = await services.replay.buffers.delete_chunks(
        run, worker=worker, session=session, version=version, below_version=below_version
    )
    return model_reply(ChunksDeleted(retired_chunks=retired))


async def _configured(services: ServicesDep, run: str, changes: dict[str, Any], *, keep: bool = False) -> Response:
    try:
        return model_reply(shown_state(await services.replay.buffers.configure(run, changes, keep=keep)))
    except errors.InvalidField as error:
        if error.location and error.location[0] in RateLimiter.model_fields:
            raise errors.InvalidField(error.message, ("limiter", *error.location)) from None
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
@requires(Permission.TRAIN)
async def take_snapshot(run: NamedRun, services: ServicesDep, body: SmallBody) -> Response:
    """Take a snapshot of the buffer. If there are more than `keep_snapshots`, the oldest is deleted.

    Payloads are not copied. They are kept while a snapshot refers to them.
    """
    name = parse(TakeSnapshot, body).name or uuid.uuid4().hex
    taken = await services.replay.snapshots.take(run, name)
    return model_reply(shown_snapshot(taken, taken.taken_ms), 201)


@router.get("/snapshots", summary="List snapshots", response_model=Snapshots, responses=_READ)
@requires(Permission.READ)
async def list_snapshots(run: NamedRun, services: ServicesDep) -> Response:
    """Return the snapshots, oldest first."""
    there, clock_ms = await services.replay.snapshots.all(run)
    return model_reply(Snapshots(snapshots=[shown_snapshot(one, clock_ms) for one in there]))


@router.post(
    "/restore",
    summary="Restore a snapshot",
    response_model=ReplayState,
    responses=body_responses(*_MISSING, errors.SnapshotNotFound),
    openapi_extra=json_body(RestoreSnapshot),
)
@requires(Permission.TRAIN, audited=True)
async def restore_snapshot(run: NamedRun, services: ServicesDep, body: SmallBody, request: Request) -> Response:
    """Restore the buffer, settings included. Then the staleness rule is applied with the current policy version.

    Samples held at the time of the snapshot count as given back. Samples held now end. The snapshot stays.
    """
    await services.replay.snapshots.restore(run, parse(RestoreSnapshot, body).name)
    state = shown_state(await services.replay.buffers.state(run))
    return await large_model_reply(request, state)


@router.delete(
    "/snapshots/{snapshot}",
    summary="Delete a snapshot",
    status_code=204,
    responses=write_responses(*_MISSING, errors.SnapshotNotFound),
)
@requires(Permission.OPERATE)
async def delete_snapshot(run: NamedRun, snapshot: SnapshotName, services: ServicesDep) -> Response:
    """Delete a snapshot, and the payloads that only it refers to."""
    await services.replay.snapshots.drop(run, snapshot)
    return Response(status_code=204)
