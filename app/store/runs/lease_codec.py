"""Encode and decode leases, of batches and of samples."""

import json
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any

from app.core.batches.leases import Lease, Portion
from app.core.ranks.sharding import Balance, EndedBy, Sharding, ShardingSpec
from lachesis.wire.states import LEASE_STATES

_FIELDS = tuple(field.name for field in fields(Lease) if field.name not in ("batch_id", "stored"))
_MOST_REMEMBERED_CHARACTERS = 8 * 1024 * 1024  # of the texts of leases
_values = attrgetter(*_FIELDS)  # `asdict` would copy them, at ten times the cost


class _Remembered:
    """The leases that were read last. Of each batch or sample only the newest text: no older one is read again."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}  # by id, the last one that was read at the end
        self._characters = 0

    def get(self, batch_id: str, text: str) -> Lease:
        known = self._leases.pop(batch_id, None)
        self._characters -= 0 if known is None else len(known.stored)
        lease = known if known is not None and known.stored == text else _parse(batch_id, text)
        self._leases[batch_id] = lease
        self._characters += len(text)
        while self._characters > _MOST_REMEMBERED_CHARACTERS:
            oldest = self._leases.pop(next(iter(self._leases)))
            self._characters -= len(oldest.stored)
        return lease


_remembered = _Remembered()


def parse_lease(batch_id: str, text: str) -> Lease:
    """Read the JSON of a lease. A lease that was read before costs little: each view of a run reads all of them.

    Raises:
        ValueError: It is not the text of a lease.
    """
    return _remembered.get(batch_id, text)


def _parse(batch_id: str, text: str) -> Lease:
    fields: dict[str, Any] = json.loads(text)
    if fields["state"] not in LEASE_STATES:
        raise ValueError(f"{fields['state']!r} is not a state of a lease")
    contents, replayed = (tuple(Portion(*portion) for portion in fields[name]) for name in ("contents", "replayed"))
    parsed: dict[str, Any] = {"sharding": _sharding(fields["sharding"])}
    parsed |= {"contents": contents, "replayed": replayed}
    parsed["debts"] = tuple((environment, change) for environment, change in fields["debts"])
    lease = Lease(batch_id=batch_id, **fields | parsed)
    object.__setattr__(lease, "stored", text)  # not an argument, so that `replace` does not copy it
    return lease


def _sharding(fields: dict[str, Any] | None) -> Sharding | None:
    if fields is None:
        return None
    spec = ShardingSpec(**fields["spec"] | {"ended_by": EndedBy(fields["spec"]["ended_by"])})
    ranks = {name: tuple(fields[name]) for name in ("taken", "acknowledged")}
    ranks["requests"] = tuple((rank, request_id) for rank, request_id in fields.get("requests", ()))
    return Sharding(**fields | ranks | {"spec": spec, "balance": Balance(**fields["balance"])})


def lease_text(lease: Lease) -> str:
    """Encode a lease for `parse_lease`. Equal leases give equal text."""
    values = dict(zip(_FIELDS, _values(lease), strict=True))
    values["sharding"] = lease.sharding and _sharding_values(lease.sharding)
    return json.dumps(values, separators=(",", ":"))


def stored_text(lease: Lease) -> str:
    """Return the text that Redis holds of a lease, for a script to compare: as it was read, or as it was written here.

    Other builds encode equal leases differently.
    """
    return lease.stored or lease_text(lease)


def _sharding_values(sharding: Sharding) -> dict[str, Any]:
    """Return the fields of a sharding that are stored. `dataclasses.asdict` would copy each of thousands of ranks."""
    values = {field.name: getattr(sharding, field.name) for field in fields(Sharding) if field.name != "loads"}
    return values | {"spec": asdict(sharding.spec), "balance": asdict(sharding.balance)}
