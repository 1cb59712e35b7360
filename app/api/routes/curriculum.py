"""The curricula of a run on the native API: made, changed while they go on, looked at, compared, removed."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api.deps import Found, NamedRun, SmallBody, parse
from app.api.http.curriculum_route import CurriculumRoute, Named
from app.api.http.replies import large_json_reply, model_reply
from app.api.routes import curriculum_docs as docs
from app.api.routes.body_docs import takes
from app.api.wire.curriculum import changes_of, comparison_json, shown_curriculum
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.curricula import Curricula, CurriculumChange, CurriculumInfo, CurriculumMetrics, CurriculumSettings
from lachesis.wire.curriculum_items import Comparison, WhatIf

router = APIRouter(prefix="/v1/runs/{run}/curricula", tags=["curricula"], route_class=CurriculumRoute)


@router.get("", summary="All curricula", response_model=Curricula, responses=docs.READS_RUN)
async def list_curricula(run: NamedRun, found: Found) -> Response:
    """Answer all curricula of a run, by name."""
    await found.administration.get(run)
    facts = await found.curricula.all(run)
    return model_reply(Curricula(curricula=list(map(shown_curriculum, facts))))


@router.put(
    "/{curriculum}",
    summary="Set up a curriculum",
    response_model=CurriculumInfo,
    responses=docs.MAKES,
    openapi_extra=takes(CurriculumSettings),
)
async def put_curriculum(
    run: NamedRun,
    curriculum: Named,
    found: Found,
    body: SmallBody,
    *,
    if_absent: Annotated[bool, Query(description="One that is there stays as it is, and is answered.")] = False,
) -> Response:
    """Give the run a curriculum with these settings, or set all of them where it is there; what is known stays."""
    changes = changes_of(parse(CurriculumSettings, body), CurriculumSettings.model_fields)
    facts = await found.curricula.configure(run, curriculum, changes, make=True, keep=if_absent)
    return model_reply(shown_curriculum(facts))


@router.patch(
    "/{curriculum}",
    summary="Change a curriculum",
    response_model=CurriculumInfo,
    responses=docs.SENDS,
    openapi_extra=takes(CurriculumChange),
)
async def change_curriculum(run: NamedRun, curriculum: Named, found: Found, body: SmallBody) -> Response:
    """Change a curriculum while it goes on: what the body names, and nothing else.

    Another strategy finds the same estimates, and the same temperature.
    """
    asked = parse(CurriculumChange, body)
    changes = changes_of(asked, asked.model_fields_set)
    return model_reply(shown_curriculum(await found.curricula.configure(run, curriculum, changes, make=False)))


@router.get("/{curriculum}", summary="Look at a curriculum", response_model=CurriculumInfo, responses=docs.READS)
async def get_curriculum(run: NamedRun, curriculum: Named, found: Found) -> Response:
    """Answer a curriculum's settings, and how many items it has: seen, in flight, in each bin, of each category."""
    return model_reply(shown_curriculum(await found.curricula.facts(run, curriculum)))


@router.delete("/{curriculum}", summary="Remove a curriculum", status_code=204, responses=docs.WRITES)
async def delete_curriculum(run: NamedRun, curriculum: Named, found: Found) -> Response:
    """Remove a curriculum with its items and all that is known of them."""
    await found.curricula.delete(run, curriculum)
    return Response(status_code=204)


@router.get(
    "/{curriculum}/metrics",
    summary="A curriculum in numbers",
    response_model=CurriculumMetrics,
    responses=docs.READS,
)
async def get_metrics(
    run: NamedRun,
    curriculum: Named,
    found: Found,
    step: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="Trainer steps so far; else the run's step.")
    ] = None,
    total_steps: Annotated[
        int | None,
        Query(ge=1, le=MAX_INTEGER, description="Those at which progress is 1; else as the curriculum says."),
    ] = None,
) -> Response:
    """Answer numbers by name, for loggers as they are."""
    return model_reply(CurriculumMetrics(metrics=await found.curricula.metrics(run, curriculum, step, total_steps)))


@router.post(
    "/{curriculum}/what-if",
    summary="What another strategy would do",
    response_model=Comparison,
    responses=docs.SENDS,
    openapi_extra=takes(WhatIf),
)
async def what_if(run: NamedRun, curriculum: Named, found: Found, request: Request, body: SmallBody) -> Response:
    """Answer what other settings would sample now, beside what these would. Nothing is changed or handed out."""
    asked = parse(WhatIf, body)
    changes = changes_of(asked, asked.model_fields_set)
    comparison = await found.what_if.compare(run, curriculum, changes, asked.n, asked.step)
    return await large_json_reply(request, comparison_json(comparison))
