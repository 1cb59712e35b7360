"""Limits of rates: what a token or a run may send each second.

The rule is GCRA, the generic cell rate algorithm. Each limit has one number, its *arrival*: the time at which all that
was sent would have come in at exactly the limit. `app/store/lua/access/count_use.lua` counts.

Source: ITU-T Recommendation I.371, annex A: virtual scheduling.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil

from lachesis.wire.limits import BURST_S, RateLimitSettings, RateUse

BURST_US = round(1_000_000 * BURST_S)


@dataclass(frozen=True, slots=True)
class Use:
    """What a request uses: requests, bytes of its body as sent, groups."""

    requests: int = 0
    bytes: int = 0
    groups: int = 0


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of a token or a run, as in `RateLimitSettings`. None: there is no such limit."""

    max_requests_per_s: float | None = None
    max_bytes_per_s: float | None = None
    max_groups_per_s: float | None = None

    def named(self) -> Iterator[tuple[str, float]]:
        """Yield the name and the value of each limit that there is."""
        return ((name, limit) for name, limit in asdict(self).items() if limit is not None)

    def costs(self, use: Use) -> Iterator[tuple[str, float, int]]:
        """Yield the name and the value of each limit that a use counts against, and its cost.

        The cost is the time that the use takes at exactly the limit, microseconds, rounded up.
        """
        amounts = (use.requests, use.bytes, use.groups)
        limits = (self.max_requests_per_s, self.max_bytes_per_s, self.max_groups_per_s)
        for name, amount, limit in zip(self.__slots__, amounts, limits, strict=True):
            if amount and limit is not None:
                yield name, limit, ceil(1_000_000 * amount / limit)


def limits_of(settings: RateLimitSettings) -> RateLimits | None:
    """Return the limits of a token or a run from its settings. None means no limit."""
    limits = RateLimits(settings.max_requests_per_s, settings.max_bytes_per_s, settings.max_groups_per_s)
    return None if limits == RateLimits() else limits


def used(limits: RateLimits, arrivals_us: Sequence[int], now_us: int) -> list[RateUse]:
    """Say how much of each limit is used, in the order of `RateLimits.named`."""
    return [
        RateUse(name=name, per_s=limit, used=max(0, arrival - now_us) / BURST_US)
        for (name, limit), arrival in zip(limits.named(), arrivals_us, strict=True)
    ]
