"""The groups of a run: submitted, followed, deleted."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.codec.annotations import decode_annotations
from app.api.codec.group_blob import decode_blobs
from app.api.codec.group_content import Part, annotations_reply, check_part, content_reply
from app.api.codec.group_json import decode_native_json
from app.api.deps import InRun, NamedRun, ServicesDep, SubmittedBody, checked_run_name, parameters, query_value
from app.api.http.access.control import identity_of
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
from app.api.http.rate_limits import count_more
from app.api.http.replies import model_reply
from app.api.http.routing import DirectNativeRoute, NativeRoute, requires
from app.api.http.tracing import span_of, spans
from app.api.wire.group_query import group_criteria
from app.api.wire.groups import shown_groups, shown_history
from app.api.wire.status import shown_warnings
from app.core.access.permissions import Permission
from app.core.access.rate_limits import Use
from app.core.groups.deletion import parse_position
from app.core.groups.listing import parse_list_position
from app.services.groups.history import GroupFacts
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Outcome
from lachesis.wire import errors
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.criteria import GroupCriteria
from lachesis.wire.errors import InvalidField
from lachesis.wire.groups import (
    GROUP_ID,
    GROUPS_SHOWN,
    MAX_ANNOTATIONS_BODY_BYTES,
    MAX_LOOKED_AT,
    Annotate,
    DeletedGroups,
    GroupAnnotated,
    GroupAnnotations,
    GroupContent,
    GroupHistory,
    GroupOutcome,
    ListedGroups,
    Receipts,
    SubmittedGroup,
    SubmittedGroups,
)
from lachesis.wire.states import FILTERS, DropReason

direct = APIRouter(
    prefix="/v1/runs/{run}/groups",
    tags=["groups"],
    route_class=DirectNativeRoute,
    dependencies=[Depends(checked_run_name)],
)
router = APIRouter(prefix="/v1/runs/{run}/groups", tags=["groups"], route_class=NativeRoute)

_STATUS: dict[DropReason | None, GroupOutcome] = {
    None: "accepted",
    "stale": "stale",
    "future_version": "refused",
    "too_long": "too_long",
    **{name: name for name in FILTERS},
}
GroupId = Annotated[str, Path(pattern=f"^{GROUP_ID}$", description="The group's id.")]


async def documented_group_id(group: GroupId) -> str:
    """Declare a group's id for OpenAPI. A `DirectNativeRoute` never calls this."""
    return group


class _OfGroup(InRun):
    """The path of a request about a group."""

    group: GroupId


async def documented_meant_environment(
    environment: Annotated[
        str | None,
        Query(
            description="Name of the environment that the ids in the groups stand for. If an id is that of another "
            "environment, the answer is 404 `environment_not_found`: the run may have been created again since the "
            "sender joined."
        ),
    ] = None,
) -> str | None:
    """Declare the query of a submission. A `DirectNativeRoute` never calls this."""
    return environment


_COPIES = 2  # of contents, in memory: as Redis has them, and as the reply has them
_TEXT_COPIES = 6  # of values in 32 bits: as Redis has them, and as JSON with up to 20 characters each

_SUBMIT: Responses = body_responses(
    errors.RunNotFound,
    errors.EnvironmentNotFound,
    errors.UnsupportedMediaType,
    errors.RunArchived,
    errors.GroupExists,
    errors.QueueFull,
    errors.IntakePaused,
    errors.SequenceTooLong,
) | response_headers(201, Idempotent_Replay="`true` if the run had all groups before. Nothing was stored.")


@direct.post(
    "",
    summary="Submit groups",
    status_code=201,
    response_model=Receipts,
    responses=_SUBMIT,
    openapi_extra=json_or_binary_body(
        SubmittedGroup, SubmittedGroups, description="One group as a blob, or several as a frame."
    ),
    dependencies=[Depends(documented_meant_environment)],
)
@requires(Permission.PRODUCE)
@spans("submit groups")
async def submit_groups(request: Request) -> Response:
    """Store one or more groups, all or none. With `LACHESIS_FSYNC` `always` (default), they then survive a crash.

    A repeated group id stores nothing and gets its first answer again.
    """
    identity = identity_of(request.scope)
    async with SubmittedBody(request) as (run, services, body):
        if sends_binary(request, "groups"):
            groups = await services.decoder.binary(decode_blobs, body, request.scope)
        else:
            groups = await services.decoder.json(decode_native_json, body, request.scope)
        await count_more(request.scope, Use(groups=len(groups)))
        if (span := span_of(request)) is not None:
            await span.submits([group.given_id for group in groups if group.given_id is not None])
        meant = query_value(request, "environment")
        outcomes = await services.groups.native.submit(run, groups, identity.environment, identity.queue, meant)
    headers = {"Idempotent-Replay": "true"} if all(outcome.repeated for outcome in outcomes) else None
    answer: dict[str, Any] = {"groups": list(map(_receipt, groups, outcomes))}
    if warnings := services.runs.warnings.of(run):
        answer["warnings"] = [warned.model_dump() for warned in shown_warnings(warnings)]
    return Response(orjson.dumps(answer), 201, headers, "application/json")


@router.get(
    "",
    summary="List groups",
    response_model=ListedGroups,
    responses=read_responses(errors.RunNotFound, errors.EnvironmentNotFound),
)
@requires(Permission.READ)
async def list_groups(
    run: NamedRun,
    services: ServicesDep,
    wanted: Annotated[GroupCriteria, Depends(group_criteria)],
    limit: Annotated[
        int, Query(ge=1, le=MAX_LOOKED_AT, description="Maximum number of groups on a page.")
    ] = GROUPS_SHOWN,
    cursor: Annotated[str | None, Query(max_length=128, description="The `cursor` of the last answer.")] = None,
) -> Response:
    """List the groups that match every criterion of the query, page by page.

    A request looks at a limited number of groups. Repeat it with the `cursor` of the answer, until the `cursor` is
    null. Then each group that stayed where it is was listed once. A group that moves in the meantime may be missed, or
    listed in both places. Groups that have left are listed for the longer of `history_retention_s` and
    `dedup_window_s`.
    """
    after = None if cursor is None else parse_list_position(cursor)
    page = await services.groups.listing.page(
        run,
        wanted,
        limit=limit,
        most=MAX_LOOKED_AT,
        after=after,
    )
    return model_reply(shown_groups(page))


@router.get(
    "/{group}",
    summary="Get the history of a group",
    response_model=GroupHistory,
    responses=read_responses(errors.RunNotFound, errors.GroupNotFound),
)
@requires(Permission.READ)
async def get_group(run: NamedRun, group: GroupId, services: ServicesDep) -> Response:
    """Return where a group is, or how it ended. The run lists groups that have left for a time."""
    facts = await services.groups.histories.of(run, group)
    item = await services.groups.contents.item(run, facts)
    return model_reply(shown_history(group, facts, item, await services.groups.annotations.names(run, group)))


@router.get(
    "/{group}/content",
    summary="Read the contents of a group",
    response_model=GroupContent,
    responses=read_responses(
        errors.RunNotFound, errors.GroupNotFound, errors.GroupGone, errors.NotAcceptable, errors.TooManyReads
    )
    | {200: {"content": binary("The group as one blob.")}},
)
@requires(Permission.READ_CONTENTS)
async def get_content(
    request: Request,
    run: NamedRun,
    group: GroupId,
    services: ServicesDep,
    sequence: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="Read this sequence only, counted from 0.")
    ] = None,
    first: Annotated[
        int | None, Query(alias="from", ge=0, le=MAX_INTEGER, description="With `sequence`: skip so many tokens.")
    ] = None,
    tokens: Annotated[
        int | None, Query(ge=1, le=MAX_INTEGER, description="With `sequence`: maximum number of tokens.")
    ] = None,
    text: Annotated[
        bool,
        Query(
            description="In JSON: add `texts`, by the tokenizer file that the operator set. At most 1,000,000 "
            "tokens and 16 MiB of text in an answer."
        ),
    ] = False,
) -> Response:
    """Return tokens, masks, scores, messages and all other contents of a group while the run keeps them.

    A run keeps the contents of groups that wait, are in a batch, are kept for a rewind, or are in the replay buffer.
    After that the answer is `group_gone`. If replies that clients have not taken fill the memory for contents, the
    answer is `too_many_reads`. A client that takes nothing for 30 s is dropped.
    """
    part = None if sequence is None else Part(sequence, first or 0, tokens)
    if part is None and (first is not None or tokens is not None):
        raise InvalidField("is required with from and tokens", ("query", "sequence"))
    is_binary = accepts_binary(request)  # an error of it comes before the contents are read
    if text and (is_binary or services.token_text is None):
        raise InvalidField(
            "is for answers in JSON" if is_binary else "needs a tokenizer: the operator sets LACHESIS_TOKENIZER_FILE",
            ("query", "text"),
        )
    async with services.contents.share() as share:

        async def admit(facts: GroupFacts) -> None:
            if part is not None:
                check_part(part, facts.group.size)
            await share.claim(_COPIES * facts.group.payload_bytes)

        kept = await services.groups.contents.of(run, group, admit)
        annotations = await services.groups.annotations.held(run, group)
        return await content_reply(
            request, group, kept, annotations, part, share, services.token_text if text else None
        )


@direct.post(
    "/{group}/annotations",
    summary="Annotate a group",
    response_model=GroupAnnotated,
    responses=body_responses(
        errors.RunNotFound,
        errors.GroupNotFound,
        errors.GroupGone,
        errors.AnnotationsFull,
        errors.TooManyReads,
    ),
    openapi_extra=json_body(Annotate),
    dependencies=[Depends(documented_group_id)],
)
@requires(Permission.TRAIN)
async def annotate_group(request: Request) -> Response:
    """Add values per token to a group whose contents are kept, for instance its entropy. The request may be repeated.

    A group has at most 8 annotations. The same names are replaced. Annotations are kept as long as the run lists the
    group, also after its contents are gone: for the longer of `history_retention_s` and `dedup_window_s`.
    """
    group = parameters(_OfGroup, request.path_params, "path").group
    async with SubmittedBody(request, MAX_ANNOTATIONS_BODY_BYTES) as (run, services, body):
        given = await services.decoder.json(decode_annotations, body, request.scope)
        share = services.contents.share()

        async def admit(facts: GroupFacts) -> None:
            await share.claim(facts.group.payload_bytes)

        try:
            names = await services.groups.annotations.put(run, group, given, admit)
        finally:
            await share.release()
    return model_reply(GroupAnnotated(id=group, annotations=names))


@router.get(
    "/{group}/annotations",
    summary="Read the annotations of a group",
    response_model=GroupAnnotations,
    responses=read_responses(errors.RunNotFound, errors.GroupNotFound, errors.TooManyReads),
)
@requires(Permission.READ_CONTENTS)
async def get_annotations(request: Request, run: NamedRun, group: GroupId, services: ServicesDep) -> Response:
    """Return the annotations of a group, also after its contents are gone.

    They share the memory for contents: without room, the answer is `too_many_reads`.
    """
    async with services.contents.share() as share:

        async def admit(size_bytes: int) -> None:
            await share.claim(_TEXT_COPIES * size_bytes)

        found = await services.groups.annotations.of(run, group, admit)
        return await annotations_reply(request, group, found, share)


@router.delete(
    "/{group}",
    summary="Delete a waiting group",
    status_code=204,
    responses=write_responses(errors.RunNotFound, errors.GroupNotFound, errors.GroupNotWaiting),
)
@requires(Permission.OPERATE)
async def delete_group(run: NamedRun, group: GroupId, services: ServicesDep) -> Response:
    """Delete a waiting group. It is dropped for the reason `deleted`. The request may be repeated.

    For a group that is in a batch or was delivered, the service answers `group_not_waiting`.
    """
    await services.groups.deletion.delete(run, group)
    return Response(status_code=204)


@router.delete(
    "",
    summary="Delete waiting groups",
    response_model=DeletedGroups,
    responses=write_responses(errors.RunNotFound, errors.EnvironmentNotFound),
)
@requires(Permission.OPERATE)
async def delete_groups(
    run: NamedRun,
    services: ServicesDep,
    wanted: Annotated[GroupCriteria, Depends(group_criteria)],
    limit: Annotated[
        int, Query(ge=1, le=MAX_LOOKED_AT, description="Maximum number of groups to look at.")
    ] = MAX_LOOKED_AT,
    cursor: Annotated[str | None, Query(max_length=128, description="The `cursor` of the last answer.")] = None,
    dry_run: Annotated[bool, Query(description="Whether to count the groups and delete none.")] = False,
) -> Response:
    """Delete waiting groups that match every criterion of the query; at least one is required.

    The criteria are those of the list. Waiting groups have no step and no reason for a drop, so these
    criteria match none.

    Each group is dropped for the reason `deleted`. A request looks at `limit` groups at most. Repeat the request with
    the `cursor` of the answer, until the `cursor` is null.
    """
    after = None if cursor is None else parse_position(cursor)
    deleted = await services.groups.deletion.delete_matching(
        run,
        wanted,
        limit=limit,
        after=after,
        dry_run=dry_run,
    )
    position = None if deleted.position is None else str(deleted.position)
    return model_reply(DeletedGroups(deleted_groups=deleted.groups, left_groups=deleted.left, cursor=position))


def _receipt(group: EncodedGroup, outcome: Outcome) -> dict[str, str | None]:
    return {"id": group.given_id, "status": _STATUS[outcome.dropped]}
