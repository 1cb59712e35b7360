"""Tell which environments of a run are alive, and what these must and may have of a batch."""

import math
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.core.environments.credits import Claim, wanted_of_batch
from app.core.environments.record import EnvironmentRecord, alive_until_ms, is_alive
from app.core.environments.shares import ShareLimits, binds, bounds_for
from app.core.model import MOST_HINTS, Bounds, Lane


class LiveEnvironments:
    """The environments of a run that are alive: only these bind.

    Args:
        records: Their records by id. Read settings only: they may come without activity.
    """

    def __init__(self, records: Mapping[int, EnvironmentRecord]) -> None:
        self.records = records
        self._shares: dict[int, ShareLimits] | None = None
        self._limited: frozenset[int | None] | None = None
        self._bounds: dict[int, dict[int, Bounds]] = {}
        self._binding: dict[int, dict[int, Bounds]] = {}
        self._awaited: dict[int, dict[int, int]] = {}

    @property
    def shares(self) -> Mapping[int, ShareLimits]:
        """Their shares, by id."""
        if self._shares is None:
            self._shares = {key: ShareLimits(one.min_share, one.max_share) for key, one in self.records.items()}
        return self._shares

    @property
    def limited(self) -> Container[int | None]:
        """The ids of those with a share limit: their groups are not like those of others in any batch."""
        if self._limited is None:
            limited = (key for key, own in self.shares.items() if own.min_share or own.max_share is not None)
            self._limited = frozenset[int | None](limited)
        return self._limited

    def bounds(self, batch_size: int) -> Mapping[int, Bounds]:
        """Return the minimum and maximum of each of them in a batch of this size, ``>= 1``."""
        if batch_size not in self._bounds:
            self._bounds[batch_size] = bounds_for(batch_size, self.shares)
        return self._bounds[batch_size]

    def binding(self, batch_size: int) -> Mapping[int, Bounds]:
        """Return the bounds that bind (`app.core.environments.shares.binds`). All others count as one environment."""
        if batch_size not in self._binding:
            bounds = self.bounds(batch_size)
            self._binding[batch_size] = {key: own for key, own in bounds.items() if binds(own, batch_size)}
        return self._binding[batch_size]

    def maximums(self, batch_size: int) -> Mapping[int, Bounds]:
        """Return the bounds of those that have a maximum, without minimums. It costs little if few have one."""
        capped = {
            key: ShareLimits(None, one.max_share) for key, one in self.records.items() if one.max_share is not None
        }
        return bounds_for(batch_size, capped)

    def awaited_sequences(self, batch_size: int) -> Mapping[int, int]:
        """Return what batches wait for: the minimum of each, or its credits for one batch where it has no minimum.

        Those without either are left out.
        """
        if batch_size not in self._awaited:
            bounds = self.bounds(batch_size)
            claims = {key: Claim(self.records[key].weight, own, 0) for key, own in bounds.items()}
            wanted = wanted_of_batch(batch_size, claims)
            self._awaited[batch_size] = {key: bounds[key].minimum or part for key, part in wanted.items() if part > 0}
        return self._awaited[batch_size]


@dataclass(slots=True)
class _LiveInterval:
    """What is alive between two moments of the run clock, milliseconds."""

    ttl_ms: int
    first_ms: int
    last_ms: float
    live: LiveEnvironments

    def holds(self, clock_ms: int, ttl_ms: int) -> bool:
        return ttl_ms == self.ttl_ms and self.first_ms <= clock_ms <= self.last_ms


class EnvironmentsById(Mapping[int, EnvironmentRecord]):
    """The environments of a run by id, in id order. A record gets its activity when it is read.

    So views of thousands of environments cost little while only a few are looked at. Views that have the same
    environments share what is computed of them.

    Args:
        records: The records, in id order, without activity.
        heard_ms: Run clock at the last sign of life, milliseconds, by id.
        members: Live members, by id.
    """

    __slots__ = ("_declared_sizes", "_heard_ms", "_interval", "_members", "_records")

    def __init__(
        self, records: Mapping[int, EnvironmentRecord], heard_ms: Mapping[int, int], members: Mapping[int, int]
    ) -> None:
        self._records = records
        self._heard_ms = heard_ms
        self._members = members
        self._interval: _LiveInterval | None = None
        self._declared_sizes: dict[int | None, tuple[int]] | None = None

    def __getitem__(self, key: int) -> EnvironmentRecord:
        record, heard_ms, members = self._records[key], self._heard_ms.get(key), self._members.get(key, 0)
        if heard_ms is None and not members:
            return record
        return record.with_activity(heard_ms, members)

    def __iter__(self) -> Iterator[int]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: object) -> bool:
        return key in self._records

    def __repr__(self) -> str:
        return f"Environments({dict(self)!r})"

    @property
    def records(self) -> Mapping[int, EnvironmentRecord]:
        """Their records, without activity."""
        return self._records

    @property
    def declared_sizes(self) -> Mapping[int | None, Collection[int]]:
        """What `declared_sizes` returns of them."""
        if self._declared_sizes is None:
            self._declared_sizes = _declared_sizes(self._records)
        return self._declared_sizes

    def live(self, clock_ms: int, ttl_ms: int) -> LiveEnvironments:
        """Return those that are alive."""
        if self._interval is None or not self._interval.holds(clock_ms, ttl_ms):
            self._interval = self._compute_live(clock_ms, ttl_ms)
        return self._interval.live

    def _compute_live(self, clock_ms: int, ttl_ms: int) -> _LiveInterval:
        """Tell which are alive, and how long this stays so. As time passes none comes alive."""
        members, heard_ms, live = self._members, self._heard_ms, {}
        last_ms = math.inf
        for key, record in self._records.items():
            if key not in members:
                heard = heard_ms.get(key)
                if not is_alive(record, heard, clock_ms, ttl_ms):
                    continue
                last_ms = min(last_ms, alive_until_ms(record, heard, ttl_ms))
            live[key] = record
        return _LiveInterval(ttl_ms, clock_ms, last_ms, LiveEnvironments(live))


def live(environments: Mapping[int, EnvironmentRecord], clock_ms: int, ttl_ms: int) -> LiveEnvironments:
    """Return the environments that are alive at a moment of the run clock.

    Args:
        environments: The environments of a run, by id.
        clock_ms: The run clock, milliseconds.
        ttl_ms: Silence after which an environment no longer counts as alive, milliseconds.
    """
    if isinstance(environments, EnvironmentsById):
        return environments.live(clock_ms, ttl_ms)
    return LiveEnvironments({key: record for key, record in environments.items() if record.alive(clock_ms, ttl_ms)})


def declared_sizes(environments: Mapping[int, EnvironmentRecord]) -> Mapping[int | None, Collection[int]]:
    """Return the group sizes that environments declared, by id, as far as reasons for no batch depend on them.

    Of environments without a share limit, these are the first `MOST_HINTS` of each size. Others of this size help as
    much, and no reason names so many.
    """
    if isinstance(environments, EnvironmentsById):
        return environments.declared_sizes
    return _declared_sizes(environments)


def _declared_sizes(records: Mapping[int, EnvironmentRecord]) -> dict[int | None, tuple[int]]:
    sizes: dict[int | None, tuple[int]] = {}
    without_limit = Counter[int]()
    for key in sorted(records):
        own = records[key]
        if not own.min_share and own.max_share is None:
            without_limit[own.group_size] += 1
            if without_limit[own.group_size] > MOST_HINTS:
                continue
        sizes[key] = (own.group_size,)
    return sizes


def known_sizes(
    lanes: Sequence[Lane], declared: Mapping[int | None, Collection[int]]
) -> dict[int | None, Collection[int]]:
    """Return the group sizes that environments have declared or queued."""
    known = dict(declared)
    for lane in lanes:
        known[lane.environment] = {*known.get(lane.environment, ()), lane.size}
    return known


def id_by_name(environments: Mapping[int, EnvironmentRecord], name: str) -> int | None:
    """Return the id of the environment with this name, without building records. None means an unknown name."""
    records = environments.records if isinstance(environments, EnvironmentsById) else environments
    return next((key for key, record in records.items() if record.name == name), None)
