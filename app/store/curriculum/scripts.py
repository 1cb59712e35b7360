"""The scripts of curricula; each Lua file says what its keys and arguments mean."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from app.store.redis.keys import CurriculumKeys, RunKeys
from app.store.redis.pipeline import Argument
from app.store.redis.scripts import script

PutOutcome = Literal["put", "outdated", "missing", "crowded"]
"""What `put_curriculum` returns."""

RegisterRefusal = Literal["gone", "full", "crowded"]
"""What `register_items` returns if it registers nothing."""

RegisterOutcome = Literal["registered", RegisterRefusal]
"""What `register_items` returns."""

ChangeOutcome = Literal[RegisterOutcome, "missing"]
"""What `register_items` returns with ``only_known``."""

ObserveRefusal = Literal["gone", "full"]
"""What `observe_items` returns if it counts nothing."""

LoadOutcome = Literal["loaded", "gone", "full", "twice"]
"""What `load_items` returns."""

FinishOutcome = Literal["loaded", "gone", "outdated", "crowded"]
"""What `finish_loading` returns."""


class ScoreRange(NamedTuple):
    """A range of scores in an order; the high end is not included."""

    order: str
    low: str
    high: str


class PlaceRow(NamedTuple):
    """A place in an order, in that of categories with the category's number; or an item, with its key as name."""

    order: str
    name: Argument
    rank: Argument


class ItemRow(NamedTuple):
    """An item to be made or changed: empty for what stays, ``-`` for none, ``=`` before the name of a category."""

    key: str
    category: str
    prior: str
    metadata: str


class LoadedRow(NamedTuple):
    """A saved item; an empty estimate: it is not seen; ``-``: no prior; empty: not in flight."""

    key: str
    category: int
    prior: str
    metadata: str
    estimate: bytes
    drawn: int
    in_flight_ms: Argument


class ChangeRow(NamedTuple):
    """An observation: an item, and the update of its estimate."""

    key: str
    change: bytes


@script
def begin_loading(
    keys: CurriculumKeys,
    *,
    curriculum_id: str,
    config: str,
    revision: str,
    random_counter: int,
    sample_count: int,
    updates: int,
    categories: Sequence[str],
    arm_values: Mapping[str, str],
) -> None: ...


@script
def count_curriculum(
    keys: CurriculumKeys,
    *,
    draws: int,
    new_samples: int,
    by_category: bool,
    clock_ms: int,
    spans: Sequence[ScoreRange],
) -> None: ...


@script
def delete_curriculum(keys: RunKeys, *, deleted_keys: Sequence[str], name: str, curriculum_id: str) -> None: ...


@script
def delete_items(keys: CurriculumKeys, *, item_keys: Sequence[str]) -> None: ...


@script
def drop_loading(keys: RunKeys, *, deleted_keys: Sequence[str], curriculum_id: str, until_ms: int | None) -> None: ...


@script
def find_items(keys: CurriculumKeys, *, orders: str, places: Sequence[PlaceRow]) -> None: ...


@script
def finish_loading(
    keys: RunKeys,
    *,
    former_keys: Sequence[str],
    name: str,
    curriculum_id: str,
    former_id: str | None,
    most_curricula: int,
) -> None: ...


@script
def load_items(
    keys: CurriculumKeys, *, curriculum_id: str, most_items: int, before: int, loaded: Sequence[LoadedRow]
) -> None: ...


@script
def observe_items(
    keys: CurriculumKeys,
    *,
    request_id: str,
    remembered_ms: int,
    most_requests: int,
    most_items: int,
    bins: int,
    observations: Sequence[ChangeRow],
) -> None: ...


@script
def put_curriculum(
    keys: CurriculumKeys,
    *,
    name: str,
    curriculum_id: str,
    old: str,
    new: str,
    config: str,
    most_curricula: int,
) -> None: ...


@script
def register_items(
    keys: CurriculumKeys, *, most_items: int, most_categories: int, only_known: bool, new_items: Sequence[ItemRow]
) -> None: ...


@script
def release_items(keys: CurriculumKeys, *, sample_id: str, item_keys: Sequence[str]) -> None: ...


@script
def take_items(
    keys: CurriculumKeys,
    *,
    number: int,
    sample_id: str,
    attempt: str,
    ttl_ms: int,
    wanted: int,
    orders: str,
    request_id: str,
    places: Sequence[PlaceRow],
) -> None: ...
