"""Fragments of a replay buffer on the native API: sent by workers, read one by one or many at once."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from app.api.codec.replay_sample import fragments_reply
from app.api.deps import Found, NamedRun, SmallBody, SubmittedBody, parse
from app.api.http.client_connection import end_of_waiting
from app.api.http.replay_route import ReplayRoute
from app.api.routes import replay_docs as docs
from app.api.routes.body_docs import takes
from app.core.errors import UnsupportedMediaType
from lachesis.wire.fragments import FRAGMENT_ID, FetchFragments, FragmentReceipts
from lachesis.wire.groups import SAFETENSORS
from lachesis.wire.ranks import MAX_WAIT_S

router = APIRouter(prefix="/v1/runs/{run}/replay/fragments", tags=["replay"], route_class=ReplayRoute)

_BINARY = (SAFETENSORS, "application/octet-stream")


@router.post(
    "",
    summary="Send fragments",
    status_code=201,
    response_model=FragmentReceipts,
    responses=docs.INSERTS,
    openapi_extra=docs.TAKES_FRAGMENTS,
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
    async with SubmittedBody(request) as (_, found, body):
        media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if media_type in _BINARY:
            fragments = await found.decoder.fragments(body)
        elif media_type == "application/json":
            fragments = await found.decoder.fragments_json(body)
        else:
            raise UnsupportedMediaType(
                f"Content-Type {media_type[:80]!r}; fragments come as application/json or {SAFETENSORS}"
            )
        stop = end_of_waiting(request.scope)
        receipts = await found.replay_insertion.insert(run, fragments, wait_s, stop)
    said = [{"number": one.number, "status": one.outcome, "fragment": one.fragment_id} for one in receipts]
    headers = {"Idempotent-Replay": "true"} if all(one.outcome == "repeated" for one in receipts) else {}
    return Response(orjson.dumps({"fragments": said}), 201, headers, "application/json")


@router.get("/{fragment}", summary="Read a fragment", responses=docs.READS_FRAGMENT, response_class=Response)
async def get_fragment(
    run: NamedRun,
    fragment: Annotated[str, Path(pattern=f"^{FRAGMENT_ID}$", description="The fragment's id.")],
    found: Found,
) -> Response:
    """Answer a fragment's blob as it came in."""
    ((_, payload),) = await found.replay.fragments(run, [fragment])
    return Response(payload, media_type=SAFETENSORS)


@router.post(
    "/fetch",
    summary="Read many fragments",
    responses=docs.FETCHES,
    openapi_extra=takes(FetchFragments),
    response_class=Response,
)
async def fetch_fragments(run: NamedRun, found: Found, body: SmallBody) -> Response:
    """Answer a frame of fragments' blobs, in the order asked for; its metadata `fragments` says what they are."""
    asked = parse(FetchFragments, body).fragments
    return fragments_reply(await found.replay.fragments(run, asked))
