"""The scripts of groups and of their payloads; each Lua file says what its keys and arguments mean."""

from collections.abc import Sequence
from typing import NamedTuple

from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Argument
from app.store.redis.scripts import script


class WaitingPlace(NamedTuple):
    """The keys of the lane and of the buffer that a group may wait in."""

    lane: str
    buffer: str


class DroppedRow(NamedTuple):
    """A group to drop; ``-`` stands for no environment."""

    group_id: str
    lane: str
    environment: Argument


class ReleasedPlace(NamedTuple):
    """The keys of the buffer that a group leaves and of the lane that it enters."""

    buffer: str
    lane: str


class ReleasedRow(NamedTuple):
    """A buffered group to release."""

    group_id: str
    lane: str


@script
def add_pending_payloads(keys: RunKeys, *, group_ids: Sequence[str]) -> None: ...


@script
def drop_groups(
    keys: RunKeys, *, places: Sequence[WaitingPlace], reason: str, history_ms: int, dropped_groups: Sequence[DroppedRow]
) -> None: ...


@script
def expire_history(keys: RunKeys, *, most: int, look_again_ms: int) -> None: ...


@script
def find_marked_payloads(keys: RunKeys, *, naming: Sequence[str], most: int) -> None: ...


@script
def mark_abandoned_payloads(keys: RunKeys, *, before_ms: int, most: int) -> None: ...


@script
def release_buffered(
    keys: RunKeys, *, places: Sequence[ReleasedPlace], released_groups: Sequence[ReleasedRow]
) -> None: ...


@script
def scan_marked_hash(keys: RunKeys, *, marked_hash: str, naming: Sequence[str], cursor: bytes, about: int) -> None: ...
