"""The curricula of a run: items, observations, samples, settings, saved states."""

import math
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from app.api.codec.curriculum_state import lines_of, read_atropos, read_lines
from app.api.codec.json_reader import minified
from app.api.deps import NamedRun, ServicesDep, SmallBody, SubmittedBody, parse
from app.api.http.negotiation import JSON, media_type
from app.api.http.openapi import Responses, body_responses, json_body, read_responses, response_headers, write_responses
from app.api.http.replies import large_json_reply, model_reply
from app.api.http.routing import RunRoute, requires
from app.api.wire.curriculum import (
    comparison_json,
    item_json,
    page_json,
    receipt_json,
    sample_json,
    shown_curriculum,
)
from app.core.access.permissions import Permission
from app.core.curriculum.indexes import ItemIndex
from app.services.curriculum.sampling import CurriculumSampleRequest
from app.store.curriculum.entries import ItemWrite
from lachesis.wire import curriculum_items as wire
from lachesis.wire import errors
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.curricula import (
    CURRICULUM_NAME,
    JSON_LINES,
    Curricula,
    CurriculumChange,
    CurriculumInfo,
    CurriculumMetrics,
    CurriculumSettings,
    ItemSorting,
    StateLoaded,
)
from lachesis.wire.curriculum_items import (
    MAX_KEY,
    MAX_METADATA_BYTES,
    Comparison,
    ItemChange,
    ItemDetails,
    Items,
    ItemsRegistered,
    ItemsReleased,
    NewItem,
    NewItems,
    Observed,
    ReleaseItems,
    SampledItems,
    SampleItems,
    WhatIf,
)
from lachesis.wire.errors import InvalidField, UnsupportedMediaType

_MAX_BYTES = 32 * 1024 * 1024  # as Python objects a body takes many times that

_MISSING = (errors.RunNotFound, errors.CurriculumNotFound)
_ITEM_MISSING = (*_MISSING, errors.ItemNotFound)
_READ = read_responses(*_MISSING)
_WRITE = write_responses(*_MISSING)
_BODY = body_responses(*_MISSING)
_OBSERVE: Responses = _BODY | response_headers(
    200, Idempotent_Replay="`true` if all of them were counted before. Nothing was changed."
)
_SAMPLE: Responses = _BODY | response_headers(200, Idempotent_Replay="`true` if the request got these items before.")
_LINES = {
    "type": "string",
    "description": "A header line, a line of JSON for each item, and a last line with the number of items.",
}
_ATROPOS = {
    "type": "object",
    "description": "The state of Atropos's CurriculumScheduler.",
    "additionalProperties": True,
    "examples": [{"strategy": "easy_first", "n_bins": 5, "item_scores": {"gsm8k/17": [0.4, 3]}}],
}
_STATE_BODY = {
    "requestBody": {"required": True, "content": {JSON_LINES: {"schema": _LINES}, JSON: {"schema": _ATROPOS}}}
}

Name = Annotated[str, Path(pattern=f"^{CURRICULUM_NAME}$", description="The curriculum's name.", examples=["gsm8k"])]
Key = Annotated[
    str,
    Path(
        min_length=1, max_length=MAX_KEY, description="The item's key, percent-encoded. Slashes may stay as they are."
    ),
]
SampleName = Annotated[str, Path(pattern="^[0-9a-f]{1,32}$", description="The sample's id.")]

# Routes are tried in order, so the ones that are called most come first.
router = APIRouter(prefix="/v1/runs/{run}/curricula", tags=["curricula"], route_class=RunRoute)


# Items, observations and samples


@router.post(
    "/{curriculum}/items",
    summary="Register items",
    response_model=ItemsRegistered,
    responses=_BODY,
    openapi_extra=json_body(NewItems),
)
@requires(Permission.SET_UP)
async def post_items(run: NamedRun, curriculum: Name, request: Request) -> Response:
    """Register items, or change the named fields of existing ones. The request may be repeated.

    Items are registered in steps of a thousand. After an error, send the request again.
    """
    async with SubmittedBody(request, _MAX_BYTES) as (_, services, body):
        items = await services.decoder.json(_new_items, body, request.scope)
        registered = await services.curriculum.items.register(run, curriculum, items)
    return model_reply(ItemsRegistered(registered=registered, known=len(items) - registered))


@router.get("/{curriculum}/items", summary="List items", response_model=Items, responses=_READ)
@requires(Permission.READ)
async def list_items(
    run: NamedRun,
    curriculum: Name,
    services: ServicesDep,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of items on the page.")] = 100,
    cursor: Annotated[
        str | None, Query(pattern="^[0-9]{1,20}(-[0-9]{1,6})?$", description="The `cursor` of the last answer.")
    ] = None,
    sort: Annotated[
        ItemSorting,
        Query(description="`mean_reward` lists all items, unseen items last. Every other order lists seen items only."),
    ] = "mean_reward",
    descending: Annotated[bool, Query(description="Whether the largest come first.")] = False,
    bin_: Annotated[int | None, Query(alias="bin", ge=0, le=99, description="Items of this bin.")] = None,
    search: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=MAX_KEY,
            description="Items whose keys contain this text, in no order. Any page may be short or empty.",
        ),
    ] = None,
) -> Response:
    """Return items, page by page."""
    if search is not None:
        if sort != "mean_reward" or descending or bin_ is not None:
            raise InvalidField(
                "a search has no order and no bin: leave out sort, descending and bin", ("query", "search")
            )
        return await large_json_reply(
            request, page_json(await services.curriculum.items.search(run, curriculum, search, limit, cursor))
        )
    page = await services.curriculum.items.page(
        run, curriculum, limit=limit, cursor=cursor, sort=sort, descending=descending, bin_=bin_
    )
    return await large_json_reply(request, page_json(page))


@router.get(
    "/{curriculum}/items/{key:text}",
    summary="Get an item",
    response_model=ItemDetails,
    responses=read_responses(*_ITEM_MISSING),
)
@requires(Permission.READ)
async def get_item(run: NamedRun, curriculum: Name, key: Key, services: ServicesDep) -> Response:
    """Return an item's estimate and its last scores."""
    return await _item_reply(services, run, curriculum, key)


@router.patch(
    "/{curriculum}/items/{key:text}",
    summary="Change an item",
    response_model=ItemDetails,
    responses=body_responses(*_ITEM_MISSING),
    openapi_extra=json_body(ItemChange),
)
@requires(Permission.SET_UP)
async def change_item(run: NamedRun, curriculum: Name, key: Key, services: ServicesDep, body: SmallBody) -> Response:
    """Change the fields in the body. Null removes a field. The estimate stays."""
    asked = parse(ItemChange, body)
    none: dict[str, Any] = {"category": "", "prior": math.nan, "metadata": ""}
    given = {name: getattr(asked, name) for name in asked.model_fields_set}
    if given.get("metadata") is not None:
        given["metadata"] = _metadata_text(given["metadata"], ("metadata",))
    changes = {name: none[name] if value is None else value for name, value in given.items()}
    await services.curriculum.items.change(run, curriculum, ItemWrite(key, **changes))
    return await _item_reply(services, run, curriculum, key)


@router.delete(
    "/{curriculum}/items/{key:text}",
    summary="Delete an item",
    status_code=204,
    responses=write_responses(*_ITEM_MISSING),
)
@requires(Permission.OPERATE)
async def delete_item(run: NamedRun, curriculum: Name, key: Key, services: ServicesDep) -> Response:
    """Delete an item and its estimate."""
    await services.curriculum.items.delete(run, curriculum, key)
    return Response(status_code=204)


@router.post(
    "/{curriculum}/observations",
    summary="Send observations",
    response_model=Observed,
    responses=_OBSERVE,
    openapi_extra=json_body(wire.Observations),
)
@requires(Permission.SAMPLE_ITEMS)
async def post_observations(run: NamedRun, curriculum: Name, request: Request) -> Response:
    """Count observations. Unknown items are registered. Items in flight become available again.

    Observations are counted in steps of a thousand. With a `request_id` the request may be repeated: each observation
    counts once.
    """
    async with SubmittedBody(request, _MAX_BYTES) as (_, services, body):
        asked = await services.decoder.json(_observations, body, request.scope)
        rewards = [(one.item, one.rewards) for one in asked.observations]
        receipt = await services.curriculum.observations.observe(run, curriculum, rewards, asked.request_id)
    headers = {"Idempotent-Replay": "true"} if receipt.repeated else {}
    return Response(receipt_json(receipt), 200, headers, "application/json")


@router.post(
    "/{curriculum}/samples",
    summary="Sample items",
    response_model=SampledItems,
    responses=_SAMPLE,
    openapi_extra=json_body(SampleItems),
)
@requires(Permission.SAMPLE_ITEMS)
async def post_samples(
    run: NamedRun, curriculum: Name, services: ServicesDep, request: Request, body: SmallBody
) -> Response:
    """Sample items to try next. They are in flight until an observation, a release or `in_flight_ttl_s`.

    With a `request_id` the request may be repeated: it gets the same items while they are in flight.
    """
    asked = parse(SampleItems, body)
    wanted = CurriculumSampleRequest(
        asked.n, asked.step, asked.total_steps, asked.seed, asked.strategy, asked.request_id or ""
    )
    use = services.curriculum.samples.bins if asked.bins_only else services.curriculum.samples.sample
    sample = await use(run, curriculum, wanted)
    headers = {"Idempotent-Replay": "true"} if sample.repeated else {}
    return await large_json_reply(request, sample_json(sample), headers)


@router.post(
    "/{curriculum}/samples/{sample}/release",
    summary="Release items",
    response_model=ItemsReleased,
    responses=_BODY,
    openapi_extra=json_body(ReleaseItems),
)
@requires(Permission.SAMPLE_ITEMS)
async def release_items(run: NamedRun, curriculum: Name, sample: SampleName, request: Request) -> Response:
    """Release unused items of a sample. Items that the sample no longer holds stay as they are."""
    async with SubmittedBody(request, _MAX_BYTES) as (_, services, body):
        asked = await services.decoder.json(_released, body, request.scope)
        released = await services.curriculum.samples.release(run, curriculum, sample, asked.items)
    return model_reply(ItemsReleased(released=released))


async def _item_reply(services: ServicesDep, run: str, curriculum: str, key: str) -> Response:
    return Response(
        item_json(*await services.curriculum.items.item(run, curriculum, key)), media_type="application/json"
    )


def _new_items(body: bytes) -> list[ItemWrite]:
    said: dict[tuple[str, str], tuple[int, Any]] = {}
    stored = []
    for position, item in enumerate(parse(NewItems, body).items):
        for name in ("category", "prior", "metadata"):
            value = getattr(item, name)
            first, other = (0, None) if value is None else said.setdefault((item.key, name), (position, value))
            if other != value:
                why = f"differs from items[{first}], which has the same key {item.key!r}"
                raise InvalidField(why, ("items", position, name))
        stored.append(_stored(item, position))
    return stored


def _stored(item: NewItem, position: int) -> ItemWrite:
    text = None if item.metadata is None else _metadata_text(item.metadata, ("items", position, "metadata"))
    return ItemWrite(item.key, item.category, item.prior, text)


def _observations(body: bytes) -> wire.Observations:
    return parse(wire.Observations, body)


def _released(body: bytes) -> ReleaseItems:
    return parse(ReleaseItems, body)


def _metadata_text(metadata: dict[str, Any], place: tuple[str | int, ...]) -> str:
    text = minified(metadata)
    if len(text) > MAX_METADATA_BYTES:
        raise InvalidField(f"{len(text)} bytes of JSON; the limit is {MAX_METADATA_BYTES}", place)
    return text.decode()


# Curricula


@router.get("", summary="List curricula", response_model=Curricula, responses=read_responses(errors.RunNotFound))
@requires(Permission.READ)
async def list_curricula(run: NamedRun, services: ServicesDep) -> Response:
    """Return all curricula of a run, by name."""
    await services.runs.administration.check(run)
    facts = await services.curriculum.administration.all(run)
    return model_reply(Curricula(curricula=list(map(shown_curriculum, facts))))


@router.put(
    "/{curriculum}",
    summary="Set up a curriculum",
    response_model=CurriculumInfo,
    responses=body_responses(errors.RunNotFound),
    openapi_extra=json_body(CurriculumSettings),
)
@requires(Permission.SET_UP)
async def put_curriculum(
    run: NamedRun,
    curriculum: Name,
    services: ServicesDep,
    body: SmallBody,
    *,
    if_absent: Annotated[bool, Query(description="Return an existing curriculum unchanged.")] = False,
) -> Response:
    """Create a curriculum, or replace all settings of an existing one. Its estimates stay."""
    changes = dict(parse(CurriculumSettings, body))
    facts = await services.curriculum.administration.configure(run, curriculum, changes, make=True, keep=if_absent)
    return model_reply(shown_curriculum(facts))


@router.patch(
    "/{curriculum}",
    summary="Change a curriculum",
    response_model=CurriculumInfo,
    responses=_BODY,
    openapi_extra=json_body(CurriculumChange),
)
@requires(Permission.SET_UP)
async def change_curriculum(run: NamedRun, curriculum: Name, services: ServicesDep, body: SmallBody) -> Response:
    """Change the settings that the body names.

    A new strategy keeps the estimates and the temperature.
    """
    asked = parse(CurriculumChange, body)
    changes = {name: getattr(asked, name) for name in asked.model_fields_set}
    return model_reply(
        shown_curriculum(await services.curriculum.administration.configure(run, curriculum, changes, make=False))
    )


@router.get("/{curriculum}", summary="Get a curriculum", response_model=CurriculumInfo, responses=_READ)
@requires(Permission.READ)
async def get_curriculum(run: NamedRun, curriculum: Name, services: ServicesDep) -> Response:
    """Return a curriculum's settings and its numbers of items: seen, in flight, in each bin, of each category."""
    return model_reply(shown_curriculum(await services.curriculum.administration.facts(run, curriculum)))


@router.delete("/{curriculum}", summary="Delete a curriculum", status_code=204, responses=_WRITE)
@requires(Permission.OPERATE)
async def delete_curriculum(run: NamedRun, curriculum: Name, services: ServicesDep) -> Response:
    """Delete a curriculum with its items."""
    await services.curriculum.administration.delete(run, curriculum)
    return Response(status_code=204)


@router.get(
    "/{curriculum}/metrics",
    summary="Metrics of a curriculum",
    response_model=CurriculumMetrics,
    responses=_READ,
)
@requires(Permission.READ)
async def get_curriculum_metrics(
    run: NamedRun,
    curriculum: Name,
    services: ServicesDep,
    step: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="Trainer steps so far. The default is the run's step.")
    ] = None,
    total_steps: Annotated[
        int | None,
        Query(
            ge=1,
            le=MAX_INTEGER,
            description="The step at which progress is 1. The default is the curriculum's setting.",
        ),
    ] = None,
) -> Response:
    """Return numbers by name, ready for a logger."""
    return model_reply(
        CurriculumMetrics(metrics=await services.curriculum.administration.metrics(run, curriculum, step, total_steps))
    )


@router.post(
    "/{curriculum}/what-if",
    summary="Compare settings",
    response_model=Comparison,
    responses=_BODY,
    openapi_extra=json_body(WhatIf),
)
@requires(Permission.READ)
async def what_if(
    run: NamedRun, curriculum: Name, services: ServicesDep, request: Request, body: SmallBody
) -> Response:
    """Return what other settings and the present settings would sample now. Nothing changes."""
    asked = parse(WhatIf, body)
    changes = {name: getattr(asked, name) for name in asked.model_fields_set - {"n", "step"}}
    comparison = await services.curriculum.comparisons.compare(run, curriculum, changes, asked.n, asked.step)
    return await large_json_reply(request, comparison_json(comparison))


# Saved states


@router.get(
    "/{curriculum}/state",
    summary="Save a curriculum",
    responses=read_responses(*_MISSING) | {200: {"content": {JSON_LINES: {"schema": _LINES}}}},
    response_class=Response,
)
@requires(Permission.READ)
async def get_state(run: NamedRun, curriculum: Name, services: ServicesDep) -> Response:
    """Return the whole curriculum as a stream: settings, random state, items with their estimates."""
    document = await services.curriculum.states.save(run, curriculum)
    return StreamingResponse(lines_of(document), media_type=JSON_LINES)


@router.put(
    "/{curriculum}/state",
    summary="Restore a curriculum",
    response_model=StateLoaded,
    responses=body_responses(*_MISSING, errors.UnsupportedMediaType),
    openapi_extra=_STATE_BODY,
)
@requires(Permission.SET_UP)
async def put_state(run: NamedRun, curriculum: Name, services: ServicesDep, request: Request) -> Response:
    """Restore a saved curriculum, all or nothing. It continues with the same samples.

    A body of type `application/json` is the state of Atropos's CurriculumScheduler.
    """
    sent = media_type(request, JSON_LINES)
    if sent == JSON:
        async with SubmittedBody(request, _MAX_BYTES) as (_, _, body):
            document = await services.decoder.json(read_atropos, body, request.scope)
    elif sent == JSON_LINES:
        document = await read_lines(request, services.settings.body_timeout_s)
    else:
        raise UnsupportedMediaType(f"Content-Type {sent[:80]!r}; send states as {JSON_LINES} or {JSON}")
    await services.curriculum.states.load(run, curriculum, document)
    counts = (await services.curriculum.administration.facts(run, curriculum)).census.counts
    items = counts.length(ItemIndex.MEAN_REWARD) + counts.length(ItemIndex.UNSEEN)
    return model_reply(StateLoaded(items=items, items_seen=counts.seen))
