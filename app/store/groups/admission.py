"""Build the command that admits groups (`admit_groups` or `admit_and_observe`), and read its reply."""

from collections.abc import Sequence
from itertools import chain
from typing import Literal

from app.core.access.queue_limits import LimitedAccount
from app.store.curriculum.entries import packed_change
from app.store.curriculum.groups import GroupObservations
from app.store.groups import scripts
from app.store.groups.checksums import checksum
from app.store.groups.entries import (
    AdmissionResult,
    Outcome,
    PendingGroup,
    Placement,
    Preconditions,
    Submission,
    entry_text,
)
from app.store.redis.keys import NONE, CurriculumKeys, RunKeys, lane_name, or_none
from app.store.redis.pipeline import Command
from lachesis.wire.errors import GroupExists, QueueFull
from lachesis.wire.printable import counted
from lachesis.wire.states import DropReason, parse_drop_reason

MOST_REMEMBERED = 1_000_000
"""While a run remembers so many groups that have left, it remembers no further groups that are dropped on arrival.

No limit of the queue counts these, so a sender could fill Redis with their names. Other groups are always remembered.
"""


def admission(
    keys: RunKeys,
    submissions: Sequence[Submission],
    preconditions: Preconditions,
    observed: Sequence[GroupObservations],
    *,
    is_pending: bool,
) -> Command:
    """Return the command that admits submissions whose payloads are written.

    Args:
        keys: The keys of the run.
        submissions: The submissions.
        preconditions: The state of the run on which the places were decided.
        observed: The observations of the groups for curricula.
        is_pending: Whether the payloads were noted as pending before. If not, the same transaction writes them.
    """
    pending = list(chain.from_iterable(submissions))
    lanes = [lane_name(group.place.environment, group.encoded.size) for group in pending]
    places = [
        scripts.PendingPlace(
            keys.buffer(lane) if group.place.buffered else keys.lane(lane), keys.payload(group.group_id)
        )
        for group, lane in zip(pending, lanes, strict=True)
    ]
    arguments: scripts.AdmissionArguments = {
        "places": places,
        "epoch": preconditions.epoch,
        "policy_version": preconditions.policy_version,
        "dedup_ms": preconditions.dedup_ms,
        "max_groups": preconditions.max_groups,
        "max_bytes": preconditions.max_bytes,
        "score_if_absent": -1 if is_pending else 0,
        "sizes": list(map(len, submissions)),
        "limited": [_limited(number, account) for number, account in enumerate(preconditions.accounts, 1) if account],
        "most_remembered": MOST_REMEMBERED,
        "submitted": list(map(_row, pending, lanes)),
    }
    if not observed:
        return scripts.admit_groups(keys, **arguments)
    return scripts.admit_and_observe(
        keys,
        observers=[_observer(CurriculumKeys(keys, each.curriculum_id)) for each in observed],
        settings=[scripts.ObserverSettings(each.bins, each.most_items) for each in observed],
        observations=[row for number, each in enumerate(observed, 1) for row in _observations(number, each)],
        **arguments,
    )


def _limited(number: int, account: LimitedAccount) -> scripts.LimitedSubmission:
    limits = account.limits
    return {
        "submission": number,
        "account": account.account_id,
        "max_groups": limits.max_queued_groups,
        "max_bytes": limits.max_queued_bytes,
    }


def _row(group: PendingGroup, lane: str) -> scripts.PendingRow:
    encoded, place = group.encoded, group.place
    digest = checksum(encoded.payload)
    return scripts.PendingRow(
        group_id=group.group_id,
        where=place.dropped or ("buffered" if place.buffered else "queued"),
        payload_bytes=len(encoded.payload),
        checksum=digest,
        environment=or_none(place.environment),
        size=encoded.size,
        tokens=encoded.weight.tokens,
        lane=lane,
        policy_version=or_none(place.policy_version),
        given_id=encoded.given_id or NONE,
        untrainable=_untrainable(place),
        entry=entry_text(encoded, digest, lane, place),
    )


def _untrainable(place: Placement) -> DropReason | Literal[""]:
    """Return the reason why a group has no training value, or an empty text."""
    if place.dropped is None and place.mark is not None and place.mark.loss_weight == 0:
        return place.mark.filtered_by
    return place.dropped or ""


def _observer(keys: CurriculumKeys) -> scripts.ObserverPlace:
    return scripts.ObserverPlace(*map(keys.key, scripts.ObserverPlace._fields))


def _observations(number: int, observed: GroupObservations) -> list[scripts.ObservationRow]:
    return [
        scripts.ObservationRow(
            curriculum=number,
            group=position + 1,
            item=item,
            change=b"" if observation is None else packed_change(observation.change, observation.arm),
        )
        for position, item, observation in observed.observations
    ]


def parse_result(
    submission: Submission,
    outcomes: Sequence[bytes],
    preconditions: Preconditions,
    account: LimitedAccount | None = None,
) -> AdmissionResult:
    """Read the reply about each group of a submission. One refused group refuses the whole submission."""
    results = []
    for group, outcome in zip(submission, outcomes, strict=True):
        match outcome.decode().split():
            case ["new" | "written"]:
                results.append(Outcome(group.place.dropped))
            case ["repeated", first]:
                results.append(Outcome(parse_drop_reason(first), repeated=True))
            case ["full", groups, size]:
                return _queue_full(preconditions, int(groups), size)
            case ["account_full", limit, groups, size] if account is not None:
                return _account_full(account, limit, groups, size)
            case ["exists", given]:
                return GroupExists(f"the run has a group {given} with other contents")
            case ["outdated"]:
                return None
            case unknown:
                raise AssertionError(unknown)
    return results


def _queue_full(preconditions: Preconditions, groups: int, size: str) -> QueueFull:
    """Say which limit of the run a submission would exceed."""
    most_groups, most_bytes = preconditions.max_groups, preconditions.max_bytes
    is_of_groups = most_groups is not None and groups >= most_groups
    limit = f"max_queued_groups={most_groups}" if is_of_groups else f"max_queued_bytes={most_bytes}"
    return QueueFull(f"{limit} of the run leaves no room: it has {counted(groups, 'group')} queued, {size} bytes")


def _account_full(account: LimitedAccount, limit: str, groups: str, size: str) -> QueueFull:
    """Say which limit of which account a submission would exceed."""
    whose = account.name + ("" if account.environment is None else f" (environment {account.environment!r})")
    value = getattr(account.limits, limit)
    return QueueFull(
        f"{limit}={value} of {whose} leaves no room: it has {counted(int(groups), 'group')} queued, {size} bytes"
    )
