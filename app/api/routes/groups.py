"""The groups of a run: submitted, followed, deleted."""

from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field

from app.api.deps import NamedRun, ServicesDep, SubmittedBody, checked_run_name
from app.api.http.negotiation import sends_binary
from app.api.http.openapi import (
    Responses,
    body_responses,
    json_or_binary_body,
    read_responses,
    response_headers,
    write_responses,
)
from app.api.http.replies import model_reply
from app.api.http.routing import DirectNativeRoute, NativeRoute
from app.core import errors
from app.core.groups.deletion import GroupFilter, parse_position
from app.core.groups.filters import FILTERS
from app.core.model import DropReason
from app.services.status import shown_warnings
from app.store.groups.codec import EncodedGroup
from app.store.groups.entries import Outcome
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.groups import (
    GROUP_ID,
    MAX_LOOKED_AT,
    GroupsDeleted,
    Lineage,
    Receipts,
    SubmittedGroup,
    SubmittedGroups,
)

submissions = APIRouter(
    prefix="/v1/runs/{run}/groups",
    tags=["groups"],
    route_class=DirectNativeRoute,
    dependencies=[Depends(checked_run_name)],
)
router = APIRouter(prefix="/v1/runs/{run}/groups", tags=["groups"], route_class=NativeRoute)

_STATUS = {None: "accepted", DropReason.STALE: "stale", DropReason.FUTURE_VERSION: "refused"}
_STATUS |= {DropReason.TOO_LONG: "too_long"}
_STATUS |= {reason: reason.value for reason in FILTERS}
GroupId = Annotated[str, Path(pattern=f"^{GROUP_ID}$", description="The group's id.")]
_Whole = Annotated[int, Field(ge=0, le=MAX_INTEGER)]

_SUBMIT: Responses = body_responses(
    errors.RunNotFound,
    errors.UnsupportedMediaType,
    errors.RunArchived,
    errors.GroupExists,
    errors.QueueFull,
    errors.SequenceTooLong,
) | response_headers(201, Idempotent_Replay="`true` if all groups were already there. Nothing was stored.")


@submissions.post(
    "",
    summary="Submit groups",
    status_code=201,
    response_model=Receipts,
    responses=_SUBMIT,
    openapi_extra=json_or_binary_body(
        SubmittedGroup, SubmittedGroups, description="One group as a blob, or several as a frame."
    ),
)
async def submit_groups(request: Request) -> Response:
    """Store one group or many, all or none. Once this is answered they survive any crash.

    A repeated group id stores nothing and gets its first answer again.
    """
    async with SubmittedBody(request) as (run, services, body):
        if sends_binary(request, "groups"):
            groups = await services.decoder.blobs(body)
        else:
            groups = await services.decoder.native(body)
        outcomes = await services.groups.native.submit(run, groups)
    headers = {"Idempotent-Replay": "true"} if all(outcome.repeated for outcome in outcomes) else {}
    answer: dict[str, Any] = {"groups": list(map(_receipt, groups, outcomes))}
    if warnings := services.runs.warnings.of(run):
        answer["warnings"] = [warned.model_dump() for warned in shown_warnings(warnings)]
    return Response(orjson.dumps(answer), 201, headers, "application/json")


@router.get(
    "/{group}",
    summary="Get the history of a group",
    response_model=Lineage,
    responses=read_responses(errors.RunNotFound, errors.GroupNotFound),
)
async def get_group(run: NamedRun, group: GroupId, services: ServicesDep) -> Response:
    """Return where a group is, or how it ended. The history is kept for `history_retention_s` after it has left."""
    life = await services.groups.histories.of(run, group)
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
                "received_age_s": life.received_age_s,
                "batch": life.batch_id,
                "step": life.step,
                "ended_age_s": life.ended_age_s,
                "reason": life.reason,
                "filtered_by": None if life.entry.mark is None else life.entry.mark.filtered_by,
            }
        )
    )


@router.delete(
    "/{group}",
    summary="Delete a waiting group",
    status_code=204,
    responses=write_responses(errors.RunNotFound, errors.GroupNotFound, errors.GroupNotWaiting),
)
async def delete_group(run: NamedRun, group: GroupId, services: ServicesDep) -> Response:
    """Delete a waiting group. It is dropped for the reason `deleted`. The request may be repeated.

    A group that is in a batch or was delivered cannot be deleted: 409.
    """
    await services.groups.deletion.delete(run, group)
    return Response(status_code=204)


@router.delete(
    "",
    summary="Delete waiting groups",
    response_model=GroupsDeleted,
    responses=write_responses(errors.RunNotFound),
)
async def delete_groups(
    run: NamedRun,
    services: ServicesDep,
    environment: Annotated[
        _Whole | Literal["none"] | None,
        Query(description="Groups of this environment. `none`: groups without an environment."),
    ] = None,
    size: Annotated[int | None, Query(ge=1, le=MAX_INTEGER, description="Groups with this many sequences.")] = None,
    older_than_version: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="Groups sampled by an earlier policy version.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LOOKED_AT, description="Most groups to look at.")] = MAX_LOOKED_AT,
    cursor: Annotated[str | None, Query(max_length=128, description="The `cursor` of the last answer.")] = None,
) -> Response:
    """Delete waiting groups that match every criterion of the query; at least one is required.

    Each is dropped for the reason `deleted`. A request looks at `limit` groups at most. Repeat it with the `cursor` of
    the answer until that is null.
    """
    wanted = GroupFilter(environment, size, older_than_version)
    after = None if cursor is None else parse_position(cursor)
    deleted = await services.groups.deletion.delete_matching(run, wanted, limit=limit, after=after)
    position = None if deleted.position is None else str(deleted.position)
    return model_reply(GroupsDeleted(deleted_groups=deleted.groups, left_groups=deleted.left, cursor=position))


def _receipt(group: EncodedGroup, outcome: Outcome) -> dict[str, str | None]:
    return {"id": group.group_id, "status": _STATUS[outcome.dropped]}
