"""Map the query of a request for a batch to the rules of ranks."""

from typing import Annotated

from fastapi import Query, Request

from app.api.deps import parameters
from app.core.ranks.costs import CostModel, Measure
from app.core.ranks.requests import ShardRequest
from app.core.ranks.sharding import EndedBy, ShardingSpec
from lachesis.wire.errors import InvalidField
from lachesis.wire.ranks import TakeQuery


async def documented_query(query: Annotated[TakeQuery, Query()]) -> TakeQuery:
    """Declare the query of a request for a batch, for OpenAPI and for the check of its names."""
    return query


def query_of(request: Request) -> TakeQuery:
    """Read the query of a request for a batch (`parameters`)."""
    return parameters(TakeQuery, dict(request.query_params), "query")


def shard_request_of(query: TakeQuery, request_id: str = "") -> ShardRequest | None:
    """Return which rank asks, and how to divide its batches; None for a trainer without ranks.

    Raises:
        InvalidField: The cost is unknown.
    """
    if query.rank is None or query.world_size is None:
        return None
    try:
        cost = CostModel.parse(query.cost)
    except InvalidField as error:
        hint = "; in a URL a plus is written %2B" if " " in query.cost.strip() and "+" not in query.cost else ""
        raise InvalidField(f"{error.message}{hint}", ("query", "cost")) from None
    if cost.measure is Measure.EPISODE:
        raise InvalidField(f"{cost} is the cost of an episode, not of a sequence of tokens", ("query", "cost"))
    spec = ShardingSpec(
        world_size=query.world_size,
        split_groups=query.split_groups,
        equal_sequences=query.equal_sequences,
        cost=str(cost),  # in one spelling, so that equal costs compare equal
        ended_by=EndedBy(query.ended_by),
        micro_batch_tokens=query.micro_batch_tokens,
        padded=query.padded,
        equal_micro_batches=query.equal_micro_batches,
    )
    return ShardRequest(query.rank, spec, query.after, query.step, request_id)
