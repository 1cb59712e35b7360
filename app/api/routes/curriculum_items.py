"""Items of curricula on the native API: registered, observed, sampled, looked at, changed, forgotten."""

import math
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from app.api.codec.json_reader import minified
from app.api.deps import Found, NamedRun, SmallBody, SubmittedBody, parse
from app.api.http.curriculum_route import CurriculumRoute, Key, Named, SampleName
from app.api.http.replies import large_json_reply, model_reply
from app.api.routes import curriculum_docs as docs
from app.api.routes.body_docs import takes
from app.api.wire.curriculum import item_json, page_json, receipt_json, sample_json
from app.core.curriculum.settings import Strategy
from app.core.errors import InvalidField
from app.services.curriculum.items import SortedBy
from app.services.curriculum.sampling import CurriculumSampleRequest
from app.store.curriculum.entries import NewItem as StoredNewItem
from lachesis.wire import curriculum_items as wire
from lachesis.wire.curriculum_items import (
    MAX_METADATA_BYTES,
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
)

router = APIRouter(prefix="/v1/runs/{run}/curricula/{curriculum}", tags=["curricula"], route_class=CurriculumRoute)

_MAX_BYTES = 32 * 1024 * 1024  # as Python objects a body takes many times that


@router.post(
    "/items",
    summary="Register items",
    response_model=ItemsRegistered,
    responses=docs.SENDS,
    openapi_extra=takes(NewItems),
)
async def post_items(run: NamedRun, curriculum: Named, request: Request) -> Response:
    """Register items, or change what the body names of those that are there. The same again changes nothing.

    Those of a request are registered a thousand at a time; sent again after an error, it goes on.
    """
    async with SubmittedBody(request, _MAX_BYTES) as (_, found, body):
        items = await found.decoder.beside(_new_items, body)
        registered = await found.curriculum_items.register(run, curriculum, items)
    return model_reply(ItemsRegistered(registered=registered, known=len(items) - registered))


@router.get("/items", summary="Look at items", response_model=Items, responses=docs.READS)
async def list_items(
    run: NamedRun,
    curriculum: Named,
    found: Found,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most items on the page.")] = 100,
    cursor: Annotated[str | None, Query(pattern="^[0-9]{1,12}$", description="Of the page before.")] = None,
    sort: Annotated[
        SortedBy,
        Query(description="By ease all items, those not known last; else the seen ones, by what is known of them."),
    ] = "ease",
    descending: Annotated[bool, Query(description="The largest first.")] = False,
    bin_: Annotated[int | None, Query(alias="bin", ge=0, le=99, description="Only those of this bin.")] = None,
) -> Response:
    """Answer items, page by page."""
    page = await found.curriculum_items.page(
        run, curriculum, limit=limit, cursor=cursor, sort=sort, descending=descending, bin_=bin_
    )
    return await large_json_reply(request, page_json(page))


@router.get("/items/{key:text}", summary="Look at an item", response_model=ItemDetails, responses=docs.READS_ITEM)
async def get_item(run: NamedRun, curriculum: Named, key: Key, found: Found) -> Response:
    """Answer what is known of an item, and its last scores."""
    return await _item_reply(found, run, curriculum, key)


@router.patch(
    "/items/{key:text}",
    summary="Change an item",
    response_model=ItemDetails,
    responses=docs.SENDS_ITEM,
    openapi_extra=takes(ItemChange),
)
async def change_item(run: NamedRun, curriculum: Named, key: Key, found: Found, body: SmallBody) -> Response:
    """Change an item: what the body names; null takes it away. What is known of it stays."""
    asked = parse(ItemChange, body)
    none: dict[str, Any] = {"category": "", "prior": math.nan, "metadata": ""}
    given = {name: getattr(asked, name) for name in asked.model_fields_set}
    if given.get("metadata") is not None:
        given["metadata"] = _metadata_text(given["metadata"], ("metadata",))
    changes = {name: none[name] if value is None else value for name, value in given.items()}
    await found.curriculum_items.change(run, curriculum, StoredNewItem(key, **changes))
    return await _item_reply(found, run, curriculum, key)


@router.delete("/items/{key:text}", summary="Forget an item", status_code=204, responses=docs.WRITES_ITEM)
async def delete_item(run: NamedRun, curriculum: Named, key: Key, found: Found) -> Response:
    """Forget an item and all that is known of it."""
    await found.curriculum_items.delete(run, curriculum, key)
    return Response(status_code=204)


@router.post(
    "/observations",
    summary="Tell rewards",
    response_model=Observed,
    responses=docs.OBSERVES,
    openapi_extra=takes(wire.Observations),
)
async def post_observations(run: NamedRun, curriculum: Named, request: Request) -> Response:
    """Count observations. Items that are not there yet are registered; those in flight may be handed out again.

    Up to a thousand are counted in one step, and of more each thousand. Under a `request_id` the request may be sent
    again: each observation is counted once.
    """
    async with SubmittedBody(request, _MAX_BYTES) as (_, found, body):
        asked = await found.decoder.beside(_observations, body)
        told = [(one.item, one.rewards) for one in asked.observations]
        receipt = await found.curriculum_observations.observe(run, curriculum, told, asked.request_id)
    headers = {"Idempotent-Replay": "true"} if receipt.repeated else {}
    return Response(receipt_json(receipt), 200, headers, "application/json")


@router.post(
    "/samples",
    summary="Sample items",
    response_model=SampledItems,
    responses=docs.SAMPLES,
    openapi_extra=takes(SampleItems),
)
async def post_samples(run: NamedRun, curriculum: Named, found: Found, request: Request, body: SmallBody) -> Response:
    """Hand out items to be tried next. Others get them once they are observed or released, or `in_flight_ttl_s` later.

    Under a `request_id` the request may be sent again: it gets the same items, as long as they are in flight.
    """
    asked = parse(SampleItems, body)
    strategy = None if asked.strategy is None else Strategy(asked.strategy)
    wanted = CurriculumSampleRequest(
        asked.n, asked.step, asked.total_steps, asked.seed, strategy, asked.request_id or ""
    )
    use = found.curriculum_samples.bins if asked.bins_only else found.curriculum_samples.sample
    sample = await use(run, curriculum, wanted)
    headers = {"Idempotent-Replay": "true"} if sample.repeated else {}
    return await large_json_reply(request, sample_json(sample, asked.n), headers)


@router.post(
    "/samples/{sample}/release",
    summary="Give items back",
    response_model=ItemsReleased,
    responses=docs.SENDS,
    openapi_extra=takes(ReleaseItems),
)
async def release_items(run: NamedRun, curriculum: Named, sample: SampleName, request: Request) -> Response:
    """Let others have items of a sample that nobody will try. Those that it has no more stay as they are."""
    async with SubmittedBody(request, _MAX_BYTES) as (_, found, body):
        keys = parse(ReleaseItems, body).items
        released = await found.curriculum_samples.release(run, curriculum, sample, keys)
    return model_reply(ItemsReleased(released=released))


async def _item_reply(found: Found, run: str, curriculum: str, key: str) -> Response:
    return Response(item_json(*await found.curriculum_items.item(run, curriculum, key)), media_type="application/json")


def _new_items(body: bytes) -> list[StoredNewItem]:
    said: dict[tuple[str, str], tuple[int, Any]] = {}
    stored = []
    for position, item in enumerate(parse(NewItems, body).items):
        for name in ("category", "prior", "metadata"):
            value = getattr(item, name)
            first, other = (0, None) if value is None else said.setdefault((item.key, name), (position, value))
            if other != value:
                raise InvalidField(f"items[{first}] says otherwise of {item.key!r}", ("items", position, name))
        stored.append(_stored(item, position))
    return stored


def _stored(item: NewItem, position: int) -> StoredNewItem:
    text = None if item.metadata is None else _metadata_text(item.metadata, ("items", position, "metadata"))
    return StoredNewItem(item.key, item.category, item.prior, text)


def _observations(body: bytes) -> wire.Observations:
    return parse(wire.Observations, body)


def _metadata_text(metadata: dict[str, Any], place: tuple[str | int, ...]) -> str:
    text = minified(metadata)
    if len(text) > MAX_METADATA_BYTES:
        raise InvalidField(f"{len(text)} bytes of JSON; at most {MAX_METADATA_BYTES} are taken", place)
    return text.decode()
