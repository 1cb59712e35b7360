"""Count requests, their bytes and their groups against the limits of their token and their run."""

import asyncio
from contextlib import suppress

from starlette.types import Scope

from app.api.http.connection.client_connection import has_arrived
from app.api.http.headers import content_length, header_of
from app.core.access.rate_limits import Use
from app.services.access.rate_limits import Meter
from lachesis.wire.errors import StoreUnavailable

_METER = "lachesis.meter"
_OUTAGE_PATIENCE_S = 0.5


async def count_request(scope: Scope, meter: Meter, limit_bytes: int) -> None:
    """Count a request whose body has not been read.

    A body in chunks counts as one byte until it has arrived. So does one over the limit of bodies: it is refused, or
    its route calls `count_body`.

    Raises:
        MalformedBody: Its size is not a number.
        RateLimited: A limit is reached.
    """
    scope[_METER] = meter
    size_bytes = content_length(scope)
    if size_bytes is None:
        size_bytes = int(header_of(scope, b"transfer-encoding") is not None)
    await meter.begin(size_bytes if size_bytes <= limit_bytes else 1, arrived=has_arrived(scope))


async def count_request_in_outage(scope: Scope, meter: Meter, limit_bytes: int) -> None:
    """Count a request that is answered also while Redis does not answer. Then it does not count.

    Raises:
        MalformedBody, RateLimited: As `count_request`.
    """
    with suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(_OUTAGE_PATIENCE_S):
            await count_request(scope, meter, limit_bytes)


async def count_body(scope: Scope, size_bytes: int) -> None:
    """Count the bytes of a body that have arrived, unless `count_request` has."""
    meter: Meter | None = scope.get(_METER)
    if meter is not None:
        await meter.end_body(size_bytes)


async def count_more(scope: Scope, use: Use) -> None:
    """Count what is known of a request only after its body.

    Raises:
        RateLimited: A limit is reached.
    """
    meter: Meter | None = scope.get(_METER)
    if meter is not None:
        await meter.count(use)
