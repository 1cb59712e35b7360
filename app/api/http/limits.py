"""Count requests, their bytes and their groups against the limits of their token and their run."""

from starlette.types import Scope

from app.api.http.headers import content_length
from app.core.access.limits import Use
from app.services.access.limits import Meter

_METER = "lachesis.meter"
_COUNTED_BYTES = "lachesis.counted_bytes"


async def count_request(scope: Scope, meter: Meter, limit_bytes: int) -> None:
    """Count a request whose body has not been read, with the size that it announces.

    A size over the limit of bodies does not count here: such a body is refused, or its route calls `count_body`.

    Raises:
        MalformedBody: Its size is not a number.
        RateLimited: A limit is reached.
    """
    size_bytes = content_length(scope) or 0
    scope[_METER], scope[_COUNTED_BYTES] = meter, size_bytes if size_bytes <= limit_bytes else 0
    await meter.count(Use(requests=1, bytes=scope[_COUNTED_BYTES]))


async def count_body(scope: Scope, size_bytes: int) -> None:
    """Count the bytes of a body that has arrived, unless `count_request` has.

    Raises:
        RateLimited: A limit is reached.
    """
    await count_more(scope, Use(bytes=size_bytes - scope.get(_COUNTED_BYTES, 0)))


async def count_more(scope: Scope, use: Use) -> None:
    """Count what is known of a request only after its body.

    Raises:
        RateLimited: A limit is reached.
    """
    meter: Meter | None = scope.get(_METER)
    if meter is not None:
        await meter.count(use)
