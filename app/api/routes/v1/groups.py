"""Groups on the native API."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Path, Request, Response

from app.api.deps import Found, NamedRun, SubmittedBody, checked_run_name
from app.api.native_route import DirectNativeRoute, NativeRoute
from app.api.replies import model_reply
from app.api.routes import native_docs as docs
from app.api.routes.answer_docs import reading
from app.core import errors
from app.core.filters import FILTERS
from app.core.model import DropReason
from app.store.codec import EncodedGroup
from app.store.group_entries import Outcome
from lachesis.wire.groups import GROUP_ID, SAFETENSORS, Lineage, Receipts

submissions = APIRouter(
    prefix="/v1/runs/{run}/groups",
    tags=["groups"],
    route_class=DirectNativeRoute,
    dependencies=[Depends(checked_run_name)],
)
router = APIRouter(prefix="/v1/runs/{run}/groups", tags=["groups"], route_class=NativeRoute)

_STATUS = {None: "accepted", DropReason.STALE: "stale", DropReason.FUTURE_VERSION: "refused"}
_STATUS |= {reason: reason.value for reason in FILTERS}
_BINARY = (SAFETENSORS, "application/octet-stream")


@submissions.post(
    "",
    summary="Submit groups",
    status_code=201,
    response_model=Receipts,
    responses=docs.ANSWERS_SUBMIT,
    openapi_extra=docs.TAKES_GROUPS,
)
async def submit_groups(request: Request) -> Response:
    """Store one group or many, all or none. Once this is answered they survive any crash.

    A repeated group id stores nothing and gets its first answer again.
    """
    async with SubmittedBody(request) as (run, found, body):
        media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        groups: list[EncodedGroup]
        if media_type in _BINARY:
            groups = await found.decoder.blobs(body)
        elif media_type == "application/json":
            groups = await found.decoder.native(body)
        else:
            raise errors.UnsupportedMediaType(
                f"Content-Type {media_type[:80]!r}; groups come as application/json or {SAFETENSORS}"
            )
        outcomes = await found.submissions.submit(run, groups)
    headers = {"Idempotent-Replay": "true"} if all(outcome.repeated for outcome in outcomes) else {}
    return Response(orjson.dumps({"groups": list(map(_receipt, groups, outcomes))}), 201, headers, "application/json")


@router.get(
    "/{group}",
    summary="Follow a group",
    response_model=Lineage,
    responses=reading(errors.RunNotFound, errors.GroupNotFound),
)
async def get_group(
    run: NamedRun, group: Annotated[str, Path(pattern=f"^{GROUP_ID}$", description="The group's id.")], found: Found
) -> Response:
    """Answer where a group is, and what became of it: kept for `lineage_s` after it has left."""
    life = await found.lineages.of(run, group)
    environment, size = life.entry.lane
    return model_reply(
        Lineage.model_validate(
            {
                "id": group,
                "state": life.state,
                "environment": environment,
                "size": size,
                "payload_bytes": life.entry.payload_bytes,
                "policy_version": life.entry.policy_version,
                "received_s": life.received_s,
                "batch": life.batch_id,
                "step": life.step,
                "ended_s": life.ended_s,
                "reason": life.reason,
                "filtered_by": None if life.entry.mark is None else life.entry.mark.filtered_by,
            }
        )
    )


def _receipt(group: EncodedGroup, outcome: Outcome) -> dict[str, str | None]:
    return {"id": group.group_id, "status": _STATUS[outcome.dropped]}
