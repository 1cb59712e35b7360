"""Define groups on their way into the store, and their index entries there."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

from app.core.access.queue_limits import LimitedAccount
from app.core.groups.filters import FilterMark
from app.core.model import LaneId
from app.core.ranks.costs import Weight
from app.core.replay.buffer import Versions
from app.core.runs.counters import Starvation
from app.store.groups.encoded_group import EncodedGroup
from app.store.redis.keys import NONE, or_none, parse_lane_name
from app.store.redis.scripts import names
from lachesis.wire.errors import GroupExists, QueueFull
from lachesis.wire.states import DropReason, FilterName

T = TypeVar("T")

ENTRY = names("group_entry", "ENTRY")
"""The words of an index entry, as `lua/groups/group_entry.lua` names them."""

ENDED_ENTRY = ENTRY[: ENTRY.index("given_id")]
"""The words of an entry that are remembered after the group has left."""

_ACCEPTED_MS, _POLICY_VERSION = map(ENTRY.index, ("accepted_ms", "policy_version"))
_WORDS = " ".join(f"%({name})s" for name in ENTRY[1:])
_ENDED_WORDS = " ".join(f"%({name})s" for name in ENDED_ENTRY[1:])


class Placement(NamedTuple):
    """Where a submission goes.

    Attributes:
        environment: The registered environment whose account it goes to, or None.
        buffered: Whether it waits in that environment's buffer for a set to complete.
        policy_version: The version it counts as sampled by, if any.
        dropped: Why it is only counted and not stored; None if it is stored.
        mark: The mark of the filter that it failed, if it is stored in spite of that.
    """

    environment: int | None
    buffered: bool = False
    policy_version: int | None = None
    dropped: DropReason | None = None
    mark: FilterMark | None = None


class PendingGroup(NamedTuple):
    """A group on its way in: its columns, its place, and the service's id. A repetition of the id stores nothing."""

    group_id: str
    encoded: EncodedGroup
    place: Placement


Submission = Sequence[PendingGroup]
"""What a request brings: its groups are stored all or none."""


class Outcome(NamedTuple):
    """The outcome of a group: why it is only counted, or None; and whether its sender had sent it before."""

    dropped: DropReason | None = None
    repeated: bool = False


AdmissionResult = list[Outcome] | QueueFull | GroupExists | None
"""The outcomes of the groups of a submission, or why it is refused. None if the run changed, or its reservation was
given up: nothing was stored; decide again and retry under new ids."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The results of submissions.

    Attributes:
        results: The result of each, in order.
        starvation: The groups since the last trainable one was stored, while there is starvation.
    """

    results: list[AdmissionResult]
    starvation: Starvation | None = None


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The preconditions for admitting groups to a run.

    Attributes:
        epoch: The epoch of the run when the places were decided.
        policy_version: The policy version when they were decided, if it matters.
        dedup_ms: How long after its admission a group's given id is recognised, if the group has left, milliseconds of
            run clock.
        max_groups: The number of waiting groups at which no group is admitted; None: no limit.
        max_bytes: The same in bytes of payload.
        accounts: Of each submission the account whose groups in the queue are limited, or None. Empty: of none.
    """

    epoch: int
    policy_version: int | None = None
    dedup_ms: int = 0
    max_groups: int | None = None
    max_bytes: int | None = None
    accounts: Sequence[LimitedAccount | None] = ()


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group's index entry.

    Attributes:
        payload_bytes: Size of its columns.
        checksum: Their fingerprint.
        accepted_ms: Run clock when it came.
        lane: Its environment and size.
        policy_version: The version it counts as sampled by, if any.
        given_id: The id its sender gave it, if any.
        weight: The numbers that determine its cost.
        mark: The mark of the filter that found it, if any.
        versions: The policy versions that sampled its tokens, if it had one for each token.
        reward: The mean of its scores, if it is known.
    """

    payload_bytes: int
    checksum: str
    accepted_ms: int
    lane: LaneId
    policy_version: int | None
    given_id: str | None
    weight: Weight
    mark: FilterMark | None = None
    versions: Versions | None = None
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class EndedEntry:
    """What is remembered of the index entry of a group that has left; see `StoredGroup`."""

    payload_bytes: int
    accepted_ms: int
    lane: LaneId
    policy_version: int | None
    mark: FilterMark | None = None


@dataclass(frozen=True, slots=True)
class EndedGroup:
    """The end of a group that has left the store.

    Attributes:
        reason: Why it was dropped; None if it was delivered.
        step: The step of the batch it was in, if any.
        clock_ms: Run clock when it left.
        entry: Its index entry.
    """

    reason: DropReason | None
    step: int | None
    clock_ms: int
    entry: EndedEntry


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group that a run holds, or that has left lately.

    Attributes:
        group_id: The service's own id of it.
        ended: Its end, if it has left. A group whose batch is kept for a rewind has left, and is held.
    """

    group_id: str
    ended: EndedGroup | None = None


def entry_text(group: EncodedGroup, digest: str, lane: str, place: Placement) -> str:
    """Write a group's index entry without its first word, the time: that is added when the group is admitted.

    Of a group that is dropped on arrival, only the words that are remembered.
    """
    weight, versions, mark = group.weight, group.versions, place.mark
    words = _WORDS if place.dropped is None else _ENDED_WORDS
    return words % {
        "payload_bytes": len(group.payload),
        "checksum": digest,
        "tokens": weight.tokens,
        "squares": weight.squares,
        "declared_cost": _number(weight.declared),
        "mark": NONE if mark is None else f"{mark.filtered_by}:{mark.loss_weight!r}",
        "mean_version": NONE if versions is None else repr(versions.mean),
        "highest_version": NONE if versions is None else versions.highest,
        "reward": _number(group.reward),
        "replay_buffer": NONE,
        "lane": lane,
        "policy_version": or_none(place.policy_version),
        "given_id": group.given_id or NONE,
    }


def _number(value: float | None) -> str:
    return NONE if value is None else repr(value)


class GroupAge(NamedTuple):
    """What decides whether a group is too old; see `StoredGroup`."""

    accepted_ms: int
    policy_version: int | None


def parse_age(entry: str) -> GroupAge:
    """Read a part of a group's index entry, in a fifth of the time of all of it."""
    words = entry.split()
    return GroupAge(int(words[_ACCEPTED_MS]), _parse(int, words[_POLICY_VERSION]))


def parse_entry(entry: str) -> StoredGroup:
    """Read a group's index entry."""
    words = dict(zip(ENTRY, entry.split(), strict=True))
    return StoredGroup(
        payload_bytes=int(words["payload_bytes"]),
        checksum=words["checksum"],
        accepted_ms=int(words["accepted_ms"]),
        lane=parse_lane_name(words["lane"]),
        policy_version=_parse(int, words["policy_version"]),
        given_id=_parse(str, words["given_id"]),
        weight=Weight(int(words["tokens"]), int(words["squares"]), _parse(float, words["declared_cost"])),
        mark=_parse(_parse_mark, words["mark"]),
        versions=_parse_versions(words),
        reward=_parse(float, words["reward"]),
    )


def _parse(parse: Callable[[str], T], word: str) -> T | None:
    return None if word == NONE else parse(word)


def _parse_versions(words: Mapping[str, str]) -> Versions | None:
    if NONE in (words["policy_version"], words["mean_version"]):
        return None
    mean, highest = float(words["mean_version"]), int(words["highest_version"])
    return Versions(int(words["policy_version"]), mean, highest, int(words["tokens"]))


def _parse_mark(text: str) -> FilterMark:
    name, loss_weight = text.split(":")
    return FilterMark(cast(FilterName, name), float(loss_weight))


def group_name(given_id: str) -> str:
    """Return the name of a group by the id that its sender gave, as `lua/groups/group_names.lua` makes it."""
    return hashlib.sha1(given_id.encode(), usedforsecurity=False).hexdigest()[:16]


def parse_known(text: str) -> KnownGroup:
    """Read what a run knows of a group that it holds, or that has left lately."""
    group_id, *ending = text.split()
    if not ending:
        return KnownGroup(group_id)
    reason, step, left_ms, *words = ending
    entry = _parse_ended(words)
    clock_ms = entry.accepted_ms if left_ms == NONE else int(left_ms)
    dropped = cast(DropReason | None, _parse(str, reason))
    return KnownGroup(group_id, EndedGroup(dropped, _parse(int, step), clock_ms, entry))


def _parse_ended(entry: Sequence[str]) -> EndedEntry:
    words = dict(zip(ENDED_ENTRY, entry, strict=True))
    return EndedEntry(
        payload_bytes=int(words["payload_bytes"]),
        accepted_ms=int(words["accepted_ms"]),
        lane=parse_lane_name(words["lane"]),
        policy_version=_parse(int, words["policy_version"]),
        mark=_parse(_parse_mark, words["mark"]),
    )
