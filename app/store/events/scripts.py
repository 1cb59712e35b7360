"""The scripts of events; each Lua file says what its keys and arguments mean."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.store.redis.keys import RunKeys
from app.store.redis.scripts import script


class NewEvent(NamedTuple):
    """An event that happened ``age_ms`` ago: JSON."""

    age_ms: int
    event: str


@script
def add_events(keys: RunKeys, *, most: int, since: str, flush: str, new: Sequence[NewEvent]) -> None: ...


@script
def read_events(keys: RunKeys, *, after: str, count: int) -> None: ...


@script
def change_alerts(keys: RunKeys, *, most: int, alerts: Sequence[Mapping[str, str]]) -> None: ...
