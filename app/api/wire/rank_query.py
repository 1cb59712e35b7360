"""What a rank asks for, as the rules take it."""

from typing import Annotated

from fastapi import Query, Request

from app.api.deps import parameters
from app.core.errors import InvalidField
from app.core.ranks.costs import CostModel, Measure
from app.core.ranks.requests import ShardRequest
from app.core.ranks.sharding import EndedBy, ShardingSpec
from lachesis.wire.ranks import TakeQuery


async def documented_query(query: Annotated[TakeQuery, Query()]) -> TakeQuery:
    """Show the query of a request for a batch in OpenAPI, and tell a `DirectNativeRoute` its names; it calls none."""
    return query


def query_of(request: Request) -> TakeQuery:
    """Read the query of a request for a batch that came on a `DirectNativeRoute`; see `parameters`."""
    return parameters(TakeQuery, dict(request.query_params), "query")


def seat_of(query: TakeQuery) -> ShardRequest | None:
    """Read which rank asks, and how it wants batches to be divided; None for a trainer that takes them whole.

    Raises:
        InvalidField: The cost is none that there is.
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
        cost=str(cost),  # in one spelling, so that ranks that mean the same say the same
        ended_by=EndedBy(query.ended_by),
        micro_batch_tokens=query.micro_batch_tokens,
        padded=query.padded,
        equal_micro_batches=query.equal_micro_batches,
    )
    return ShardRequest(query.rank, spec, query.after, query.step)
