"""Balanced shards of datasets of episodes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response

from app.api.deps import Services, SubmittedBody, parse
from app.api.http.openapi import ACCESS_ERRORS, BODY_ERRORS, json_body, problem_responses
from app.api.http.replies import large_json_reply
from app.api.http.routing import DirectNativeRoute, requires
from app.api.wire.shards import shown_plan
from app.core.access.permissions import Permission
from app.services.datasets import DatasetPlan, ShardPlanSpec, episodes_of, plan_episodes
from lachesis.wire import errors
from lachesis.wire.errors import InvalidField
from lachesis.wire.shards import InlineEpisode, ShardPlanInfo, ShardPlanRequest

_REFUSALS = (errors.InvalidField, errors.DatasetNotFound, errors.InvalidDataset)

router = APIRouter(prefix="/v1/shards", tags=["shards"], route_class=DirectNativeRoute)

MAX_INLINE_BYTES = 32 * 1024 * 1024
"""Largest body. Python objects take many times that. Larger datasets are read from disk."""


@router.post(
    "/plan",
    summary="Plan balanced shards",
    response_model=ShardPlanInfo,
    responses=problem_responses(*ACCESS_ERRORS, *BODY_ERRORS, *_REFUSALS),
    openapi_extra=json_body(ShardPlanRequest),
)
@requires(Permission.PLAN_SHARDS)
async def plan_shards(request: Request) -> Response:
    """Divide episodes between ranks so that loads are even. Nothing is stored.

    The episodes come with the request, as `lengths` or `episodes`, or from a dataset on the service's disk, below
    `LACHESIS_DATASETS_DIR` (`path`).
    """
    async with SubmittedBody(request, MAX_INLINE_BYTES) as (_, services, body):
        answer = await services.datasets.in_order(lambda: _answer(services, body))
    return await large_json_reply(request, answer)


def _answer(services: Services, body: bytes) -> bytes:
    asked = parse(ShardPlanRequest, body)
    terms = ShardPlanSpec(asked.ranks, asked.cost, asked.equal_episodes, asked.length)
    given = [name for name in ("lengths", "episodes", "path") if getattr(asked, name) is not None]
    if len(given) != 1:
        raise InvalidField(f"send one of lengths, episodes and path, not {' and '.join(given) or 'none'}")
    if asked.path is not None:
        return _reply(services.datasets.dataset(asked.path, terms), asked.list_episodes)
    if asked.length is not None:
        raise InvalidField("names a column of a dataset on disk: send it with path only", ("length",))
    episodes = asked.episodes or ()
    lengths = np.array(asked.lengths or [episode.length for episode in episodes], np.int64)
    return _reply(plan_episodes(_ids(episodes, len(lengths)), lengths, _costs(episodes), terms), asked.list_episodes)


def _ids(episodes: Sequence[InlineEpisode], count: int) -> Any:
    ids = [episode.episode for episode in episodes]
    kinds = {*map(type, ids)}
    if kinds <= {type(None)}:
        return np.arange(count)
    if len(kinds) > 1:
        at = next(n for n, name in enumerate(ids) if type(name) is not type(ids[0]))
        raise InvalidField("ids must be all numbers, all strings, or all absent", ("episodes", at, "episode"))
    if len(set(ids)) < len(ids):
        seen: dict[Any, int] = {}
        at = next(n for n, name in enumerate(ids) if seen.setdefault(name, n) != n)
        raise InvalidField(f"{ids[at]!r} is also the id of episodes[{seen[ids[at]]}]", ("episodes", at, "episode"))
    return ids


def _costs(episodes: Sequence[InlineEpisode]) -> Any:
    costs = [episode.cost for episode in episodes]
    if not costs or None in costs:
        return None
    return np.array(costs, np.float64)


def _reply(planned: DatasetPlan, list_episodes: bool) -> bytes:
    plan = shown_plan(planned).model_dump()
    if list_episodes:
        for shard, (ids, _, _) in zip(plan["shards"], episodes_of(planned), strict=True):
            shard["episodes"] = ids
    return orjson.dumps(plan)
