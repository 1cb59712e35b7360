"""The scripts of groups and of their payloads; each Lua file says what its keys and arguments mean."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypedDict, Unpack

from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Argument
from app.store.redis.scripts import script
from lachesis.wire.states import DropReason


class LimitedSubmission(TypedDict):
    """A submission, from 1, of an account that may have only so many groups and bytes in the queue (None: any)."""

    submission: int
    account: str
    max_groups: int | None
    max_bytes: int | None


class PendingPlace(NamedTuple):
    """The keys of the lane or buffer that a group goes to, and of its payload."""

    waiting: str
    payload: str


class PendingRow(NamedTuple):
    """A group on its way in. ``-`` stands for no environment, version or id.

    Attributes:
        where: Where it waits, or why it is dropped.
        untrainable: Why it has no training value; empty if it has some.
    """

    group_id: str
    where: Literal["queued", "buffered"] | DropReason
    payload_bytes: int
    checksum: str
    environment: Argument
    size: int
    tokens: int
    lane: str
    policy_version: Argument
    given_id: str
    untrainable: DropReason | Literal[""]
    entry: str


class ObserverPlace(NamedTuple):
    """The keys of a curriculum that observes groups."""

    curriculum: str
    items: str
    estimates: str
    mean_reward: str
    posterior: str
    signal: str
    last: str
    drawn: str
    unseen: str
    prior_only: str
    category: str
    arms: str
    in_flight: str
    holders: str


class ObserverSettings(NamedTuple):
    """How many bins are arms of a curriculum's bandit (0: categories are), and how many items it may have."""

    bins: int
    most_items: int


class ObservationRow(NamedTuple):
    """What a group changes of an item: the numbers of the curriculum and of the group, from 1; empty: nothing."""

    curriculum: int
    group: int
    item: str
    change: bytes


class WaitingPlace(NamedTuple):
    """The keys of the lane and of the buffer that a group may wait in."""

    lane: str
    buffer: str


class DroppedLane(TypedDict):
    """A lane with groups to drop: its name, its environment (``-`` for none), and how many groups."""

    name: str
    environment: str
    groups: int


class ReleasedPlace(NamedTuple):
    """The keys of the buffer that a group leaves and of the lane that it enters."""

    buffer: str
    lane: str


class ReleasedRow(NamedTuple):
    """A buffered group to release."""

    group_id: str
    lane: str


class AnnotationRow(NamedTuple):
    """An annotation of a group: its name and the bytes of its values."""

    name: str
    values: bytes


@script
def add_pending_payloads(keys: RunKeys, *, group_ids: Sequence[str]) -> None: ...


class AdmissionArguments(TypedDict):
    """The arguments of `app/store/lua/groups/admission.lua`, which both scripts include."""

    places: Sequence[PendingPlace]
    epoch: int
    policy_version: int | None
    dedup_ms: int
    max_groups: int | None
    max_bytes: int | None
    score_if_absent: int
    sizes: Sequence[int]
    limited: Sequence[LimitedSubmission]
    most_remembered: int
    submitted: Sequence[PendingRow]


@script
def admit_groups(keys: RunKeys, **arguments: Unpack[AdmissionArguments]) -> None: ...


@script
def admit_and_observe(
    keys: RunKeys,
    *,
    observers: Sequence[ObserverPlace],
    settings: Sequence[ObserverSettings],
    observations: Sequence[ObservationRow],
    **arguments: Unpack[AdmissionArguments],
) -> None: ...


@script
def delete_marked_payloads(keys: RunKeys, *, naming: Sequence[str], most: int) -> None: ...


@script
def drop_groups(
    keys: RunKeys,
    *,
    reason: str,
    dropped_lanes: Sequence[DroppedLane],
    places: Sequence[WaitingPlace],
    group_ids: Sequence[str],
) -> None: ...


@script
def drop_versions(
    keys: RunKeys, *, reason: str, epoch: int, policy_version: int, least: Argument, greatest: Argument, limit: int
) -> None: ...


@script
def expire_history(keys: RunKeys, *, most: int, remembered_ms: int) -> None: ...


@script
def find_left_groups(keys: RunKeys, *, clock_ms: int | None, passed: int, last_name: str, most: int) -> None: ...


@script
def mark_abandoned_payloads(keys: RunKeys, *, before_ms: int, most: int) -> None: ...


@script
def put_annotations(
    keys: RunKeys,
    *,
    group_name: str,
    group_id: str,
    most_names: int,
    most_bytes: int,
    added: Sequence[AnnotationRow],
) -> None: ...


@script
def release_buffered(
    keys: RunKeys, *, places: Sequence[ReleasedPlace], released_groups: Sequence[ReleasedRow]
) -> None: ...


@script
def scan_marked_hash(keys: RunKeys, *, marked_hash: str, naming: Sequence[str], cursor: bytes, about: int) -> None: ...
