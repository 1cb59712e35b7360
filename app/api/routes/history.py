"""The history of a run, for charts."""

import asyncio
from dataclasses import asdict, fields
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response

from app.api.deps import MOST_SHOWN, NamedRun, ServicesDep
from app.api.http.openapi import read_responses
from app.api.http.routing import NativeRoute, requires
from app.api.wire.time_query import FromTime, ToTime
from app.core.access.permissions import Permission
from app.core.history.charts import Histograms
from app.core.history.resolution import DAY_S, MOST_POINTS, AskedRange, Range
from app.core.history.shares import Shares
from app.core.history.wanted import WantedHistory
from lachesis.wire import errors
from lachesis.wire.errors import InvalidField
from lachesis.wire.history import (
    EnvironmentSeries,
    History,
    HistoryCount,
    HistoryHistograms,
    HistoryShares,
    HistoryValue,
    RunSeries,
)

router = APIRouter(prefix="/v1/runs/{run}/history", tags=["history"], route_class=NativeRoute)

_MOST_NAME = 1000
_MOST_FIELDS = 2000
_FIELDS = {"run": tuple(RunSeries.model_fields), "environments": tuple(EnvironmentSeries.model_fields)}

OneEnvironment = Annotated[
    str | None, Query(max_length=_MOST_NAME, description="Show only the environment of this name.")
]
_LeastStep = Annotated[
    int | None,
    Query(
        ge=1, le=DAY_S, description="The shortest span to return, seconds. Default: the finest that covers the range."
    ),
]
_MostSpans = Annotated[
    int,
    Query(
        ge=1, le=MOST_POINTS, description="The most spans to return: longer ones are taken as needed, up to a day each."
    ),
]
SomeFields = Annotated[
    str | None,
    Query(
        max_length=_MOST_FIELDS,
        description="Which series to return, separated by commas: `run.batches,environments.share_got`. `run` and "
        "`environments` stand for all of theirs. Default: all. The less is asked for, the faster is the answer.",
        examples=["run.blocked_s,run.batches"],
    ),
]


def asked_range(
    from_s: FromTime = None, to_s: ToTime = None, step_s: _LeastStep = None, most_spans: _MostSpans = MOST_POINTS
) -> AskedRange:
    """Return the range that a request asks for."""
    return AskedRange(from_s, to_s, step_s or 0, most_spans)


Asked = Annotated[AskedRange, Depends(asked_range)]


@router.get("", summary="Read the history", response_model=History, responses=read_responses(errors.RunNotFound))
@requires(Permission.READ)
async def get_history(
    request: Request,
    run: NamedRun,
    services: ServicesDep,
    asked: Asked,
    environment: OneEnvironment = None,
    fields: SomeFields = None,
) -> Response:
    """Return series of the run and its environments.

    The service keeps spans of 10 s for an hour and of 1 min for a day. It keeps spans of 15 min and of 6 h for
    30 days. The answer has the finest spans that cover the range and are not too many. A value is null where nothing is
    known. If an API process is killed, what it counted in the last 10 s is missing. A reset clears the history, and
    changes `first_epoch`, as does the creation of another run with this name.
    """
    wanted = _wanted(fields, environment)

    async def series() -> bytes:
        found = await services.history.reading.series(run, asked, wanted)
        next_in_s = services.history.writer.next_in_s(run)
        contents = {"first_epoch": found.first_epoch, "run": found.run, "environments": found.environments}
        return await _text(found.shown, next_in_s, contents)

    return await services.answers.reply(request, series)


@router.get(
    "/histograms",
    summary="Read histograms over time",
    response_model=HistoryHistograms,
    responses=read_responses(errors.RunNotFound),
)
@requires(Permission.READ)
async def get_histograms(
    request: Request,
    run: NamedRun,
    services: ServicesDep,
    value: Annotated[HistoryValue, Query(description="The value that is counted.")],
    asked: Asked,
    environment: OneEnvironment = None,
) -> Response:
    """Return how a value of groups was distributed: of all accepted groups, and of those in new batches."""

    async def over_time() -> bytes:
        shown, found = await services.history.reading.histograms(run, value, asked, environment)
        next_in_s = services.history.writer.next_in_s(run)
        return await _text(shown, next_in_s, {"value": value, **_fields_of(found)})

    return await services.answers.reply(request, over_time)


@router.get(
    "/shares",
    summary="Compare environments",
    response_model=HistoryShares,
    responses=read_responses(errors.RunNotFound),
)
@requires(Permission.READ)
async def get_shares(
    request: Request,
    run: NamedRun,
    services: ServicesDep,
    asked: Asked,
    count: Annotated[HistoryCount, Query(description="What shares are counted in.")] = "sequences",
) -> Response:
    """Return the share of each environment in what was generated and in what was trained on.

    Generated groups are all accepted groups of the range. Trained groups are those in new batches, without groups from
    the replay buffer. Environments whose shares differ most come first.
    """

    async def compared() -> bytes:
        shown, found = await services.history.reading.shares(run, count, asked)
        about = {"from_s": shown.from_s, "to_s": shown.to_s, "next_in_s": services.history.writer.next_in_s(run)}
        answer = {**about, "count": count, **_fields_of(found)}
        return await asyncio.to_thread(orjson.dumps, answer)

    return await services.answers.reply(request, compared)


def _fields_of(found: Histograms | Shares) -> dict[str, Any]:
    """Return the fields of an answer by name. `asdict` would copy all that is in them."""
    return {field.name: getattr(found, field.name) for field in fields(found)}


async def _text(shown: Range, next_in_s: int, contents: dict[str, Any]) -> bytes:
    answer = {**asdict(shown), "next_in_s": next_in_s, "times_s": shown.times_s, **contents}
    return await asyncio.to_thread(orjson.dumps, answer)


def _wanted(fields: str | None, environment: str | None) -> WantedHistory:
    """Read which series are asked for.

    Raises:
        InvalidField: There is no such series.
    """
    if fields is None:
        return WantedHistory(environment=environment)
    asked = {part: set[str]() for part in _FIELDS}
    for field in fields.split(","):
        part, _, name = field.partition(".")
        if part not in _FIELDS or (name and name not in _FIELDS[part]) or field.endswith("."):
            known = ", ".join(_FIELDS.get(part, _FIELDS))
            raise InvalidField(f"there is no series {field[:MOST_SHOWN]!r}; there are: {known}", ("query", "fields"))
        asked[part].update([name] if name else _FIELDS[part])
    return WantedHistory(tuple(sorted(asked["run"])), tuple(sorted(asked["environments"])), environment)
