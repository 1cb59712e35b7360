"""Rate limits: what a token or a run may send per second.

The rule is GCRA, the generic cell rate algorithm. Each limit has one number, its *arrival*: the time at which all that
was sent would have come in at exactly the limit. `app/store/lua/access/count_use.lua` counts. It stores with an arrival
when that was written. An arrival that was written in the future does not count: the clock has gone back since.

Source: ITU-T Recommendation I.371, annex A: virtual scheduling.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple, TypeVar

from lachesis.wire.limits import BURST_S, QueueLimitSettings, RateLimitSettings, RunLimitSettings

BURST_US = round(1_000_000 * BURST_S)

_RATES = tuple(RateLimitSettings.model_fields)
_Limits = TypeVar("_Limits", RateLimitSettings, RunLimitSettings, QueueLimitSettings)


@dataclass(frozen=True, slots=True)
class Use:
    """What a request uses: requests, bytes of its body as sent, groups."""

    requests: int = 0
    bytes: int = 0
    groups: int = 0


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit by name, its value, and the used part of its burst."""

    name: str
    per_s: float
    used: float


class LimitCost(NamedTuple):
    """The cost of a use for a limit of this name and value: the time that the use takes at exactly the limit."""

    name: str
    per_s: float
    cost_us: int


def limits_of(kind: type[_Limits], settings: _Limits) -> _Limits | None:
    """Return the limits among settings, which may have other fields, too. None means no limit."""
    limits = kind(**{name: getattr(settings, name) for name in kind.model_fields})
    return None if limits == kind() else limits


def named_limits(limits: RateLimitSettings) -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each limit that there is."""
    return ((name, limit) for name in _RATES if (limit := getattr(limits, name)) is not None)


def costs(limits: RateLimitSettings, use: Use) -> Iterator[LimitCost]:
    """Yield the cost of a use for each limit that it counts against, rounded up."""
    for name, amount in zip(_RATES, (use.requests, use.bytes, use.groups), strict=True):
        if amount and (limit := getattr(limits, name)) is not None:
            yield LimitCost(name, limit, ceil(1_000_000 * amount / limit))


def used(limits: RateLimitSettings, arrivals_us: Sequence[int], now_us: int) -> list[LimitUse]:
    """Say how much of each limit is used, in the order of `named`."""
    return [
        LimitUse(name, limit, max(0, arrival - now_us) / BURST_US)
        for (name, limit), arrival in zip(named_limits(limits), arrivals_us, strict=True)
    ]
