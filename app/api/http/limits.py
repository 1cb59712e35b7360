"""Count requests, their bytes and their groups against the limits of their token and their run."""

from starlette.types import Scope

from app.api.http.headers import header_of
from app.core.access.limits import Use
from app.services.access.limits import Meter

_METER = "lachesis.meter"
_MAX_LENGTH_DIGITS = 20


async def count_request(scope: Scope, meter: Meter, limit_bytes: int) -> None:
    """Count a request whose body has not been read, with the size that it announces.

    A size over the limit of bodies does not count: such a body is refused.

    Raises:
        RateLimited: A limit is reached.
    """
    scope[_METER] = meter
    announced = header_of(scope, b"content-length") or b""
    known = announced.isdigit() and len(announced) <= _MAX_LENGTH_DIGITS
    size_bytes = int(announced) if known else 0
    await meter.count(Use(requests=1, bytes=size_bytes if size_bytes <= limit_bytes else 0))


async def count_more(scope: Scope, use: Use) -> None:
    """Count what is known of a request only after its body: groups, and bytes whose size was not announced.

    Raises:
        RateLimited: A limit is reached.
    """
    meter: Meter | None = scope.get(_METER)
    if meter is not None:
        await meter.count(use)
