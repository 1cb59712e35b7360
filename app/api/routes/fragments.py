"""The fragments of a replay buffer."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from app.api.codec import replay_sample as codec
from app.api.codec.fragments import decode_fragments, decode_fragments_json
from app.api.deps import NamedRun, ServicesDep, SmallBody, SubmittedBody, parse
from app.api.http.access.control import Waiting, identity_of
from app.api.http.negotiation import sends_binary
from app.api.http.openapi import (
    Responses,
    binary,
    body_responses,
    json_body,
    json_or_binary_body,
    read_responses,
    response_headers,
)
from app.api.http.routing import RunRoute, requires
from app.core.access.permissions import Permission, check_worker
from lachesis.wire import errors
from lachesis.wire.fragments import (
    FRAGMENT_ID,
    FetchFragments,
    FragmentReceipts,
    SubmittedFragment,
    SubmittedFragments,
)
from lachesis.wire.limits import MAX_WAIT_S

_MISSING = (errors.RunNotFound, errors.ReplayNotFound)
_BLOB_CONTENT = {"content": binary(codec.BLOBS)}

_INSERT: Responses = body_responses(
    *_MISSING, errors.UnsupportedMediaType, errors.FragmentExists, errors.ReplayBlocked, errors.RunFull
) | response_headers(201, Idempotent_Replay="`true` if the buffer had all fragments before. Nothing was stored.")

router = APIRouter(prefix="/v1/runs/{run}/replay", tags=["replay"], route_class=RunRoute)


@router.post(
    "/fragments",
    summary="Send fragments",
    status_code=201,
    response_model=FragmentReceipts,
    responses=_INSERT,
    openapi_extra=json_or_binary_body(SubmittedFragment, SubmittedFragments, description=codec.BLOBS),
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
