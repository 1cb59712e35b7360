"""Define groups on their way into the store, and their index entries there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.core.errors import GroupExists, QueueFull
from app.core.groups.filters import FilterMark
from app.core.model import DropReason, LaneId
from app.core.ranks.costs import Weight
from app.core.replay.buffer import Versions, mean_reward
from app.core.runs.counters import Starvation
from app.store.groups.codec import EncodedGroup, checksum
from app.store.redis.keys import NONE, RunKeys, lane_name, parse_lane_name
from app.store.redis.pipeline import Argument

BATCH_HISTORY_WORDS = 4
"""Words in the history of a batch; that of a group, in the same hash, ends with its entry."""

_DROP_REASONS = set(DropReason)


@dataclass(frozen=True, slots=True)
class Placement:
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


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """A group on its way in: its columns, its place, and the service's id. A repetition of the id stores nothing."""

    group_id: str
    encoded: EncodedGroup
    place: Placement


Submission = Sequence[PendingGroup]
"""What a request brings: its groups are stored all or none."""


@dataclass(frozen=True, slots=True)
class Outcome:
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
        dedup_ms: How long a given id is recognised, milliseconds of run clock.
        history_ms: How long the history of a group is kept, milliseconds of run clock.
        max_groups: Groups that wait at which none is admitted, or None.
        max_bytes: The same in bytes of payload.
    """

    epoch: int
    policy_version: int | None = None
    dedup_ms: int = 0
    history_ms: int = 0
    max_groups: int | None = None
    max_bytes: int | None = None


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
        weight: What its cost follows from.
        mark: What it bears if a filter found it.
        versions: The policy versions that sampled its tokens, where it said so of each.
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
class EndedGroup:
    """The end of a group that has left the store.

    Attributes:
        outcome: ``delivered``, or the reason why it was dropped.
        batch_id: The batch it was in, if any.
        step: That batch's step.
        clock_ms: Run clock when it left.
        entry: Its index entry.
    """

    outcome: str
    batch_id: str | None
    step: int | None
    clock_ms: int
    entry: StoredGroup


def index_arguments(keys: RunKeys, groups: Iterable[PendingGroup]) -> tuple[list[str], list[Argument]]:
    """Return the keys and arguments of `lua/groups/admit_groups.lua` that are of each group."""
    own_keys: list[str] = []
    arguments: list[Argument] = []
    for group in groups:
        encoded, place = group.encoded, group.place
        name = lane_name(place.environment, encoded.size)
        own_keys.append(keys.buffer(name) if place.buffered else keys.lane(name))
        own_keys.append(keys.payload(group.group_id))
        where = place.dropped or ("buffered" if place.buffered else "queued")
        arguments += [group.group_id, where, _entry(encoded, name, place)]
    return own_keys, arguments


def parse_result(submission: Submission, outcomes: Sequence[bytes]) -> AdmissionResult:
    """Read the reply of `admit_groups.lua` about each group of a submission. One refusal refuses all of them."""
    told = []
    for group, outcome in zip(submission, outcomes, strict=True):
        match outcome.decode().split():
            case ["new" | "written"]:
                told.append(Outcome(group.place.dropped))
            case ["repeated", first]:
                told.append(Outcome(DropReason(first) if first in _DROP_REASONS else None, repeated=True))
            case ["full", groups, size]:
                return QueueFull(f"the run holds {groups} groups, {size} bytes, which is as much as it may")
            case ["exists", given]:
                return GroupExists(f"group {given} is there, with other contents")
            case ["outdated"]:
                return None
            case unknown:
                raise AssertionError(unknown)
    return told


def _entry(group: EncodedGroup, lane: str, place: Placement) -> str:
    """Write a group's index entry without its time. `lua/groups/index_group.lua` inserts that as the third word.

    The word before the lane says which replay buffer it has entered (`lua/replay/enqueue_for_replay.lua`).
    """
    weight, versions, rewards = group.weight, group.versions, group.rewards
    mark = NONE if place.mark is None else f"{place.mark.filtered_by}:{place.mark.loss_weight!r}"
    spread = f"{NONE} {NONE}" if versions is None else f"{versions.mean!r} {versions.highest}"
    words = [len(group.payload), checksum(group.payload), weight.tokens, weight.squares, _number(weight.declared), mark]
    words += [spread, _number(mean_reward(rewards) if len(rewards) else None), NONE, lane]
    return " ".join(map(str, (*words, or_text(place.policy_version, NONE), group.group_id or NONE)))


def _number(value: float | None) -> str:
    return NONE if value is None else repr(value)


def or_text(value: int | None, otherwise: str) -> Argument:
    """Return a number as it is, or what stands for none."""
    return otherwise if value is None else value


def parse_entry(entry: str) -> StoredGroup:
    """Read a group's index entry."""
    size, digest, accepted, tokens, squares, sent, mark, mean, highest, reward, _, lane, version, given_id = (
        entry.split()
    )
    lowest = None if version == NONE else int(version)
    return StoredGroup(
        payload_bytes=int(size),
        checksum=digest,
        accepted_ms=int(accepted),
        lane=parse_lane_name(lane),
        policy_version=lowest,
        given_id=None if given_id == NONE else given_id,
        weight=Weight(int(tokens), int(squares), None if sent == NONE else float(sent)),
        mark=None if mark == NONE else _parse_mark(mark),
        versions=None if lowest is None or mean == NONE else Versions(lowest, float(mean), int(highest), int(tokens)),
        reward=None if reward == NONE else float(reward),
    )


def _parse_mark(text: str) -> FilterMark:
    reason, loss_weight = text.split(":")
    return FilterMark(DropReason(reason), float(loss_weight))


def parse_history(text: str) -> EndedGroup | None:
    """Read the end of a group that has left; None if the text is about a batch."""
    if len(text.split()) == BATCH_HISTORY_WORDS:
        return None
    outcome, batch_id, step, clock_ms, entry = text.split(" ", 4)
    return EndedGroup(
        outcome,
        None if batch_id == NONE else batch_id,
        None if step == NONE else int(step),
        int(clock_ms),
        parse_entry(entry),
    )
