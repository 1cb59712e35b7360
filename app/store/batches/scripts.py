"""The scripts of batches; each Lua file says what its keys and arguments mean."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Argument
from app.store.redis.scripts import script


class EndedLease(NamedTuple):
    """A lease that ends, as it was read."""

    batch_id: str
    seen: str
    step: int
    lease_id: str


class PlannedRow(NamedTuple):
    """A group from the queue that a batch takes; ``-`` stands for no environment."""

    group_id: str
    lane: str
    bytes: int
    environment: Argument
    size: int
    tokens: int


class RequeuedRow(NamedTuple):
    """A group that returns to its lane; ``-`` stands for no environment."""

    group_id: str
    lane: str
    arrival: int
    bytes: int
    environment: Argument
    size: int
    tokens: int


class RewoundLease(NamedTuple):
    """The lease of a rewound batch: as it was read (empty for a kept batch), and as it is from now on."""

    batch_id: str
    seen: str
    new: str


@script
def acknowledge_batches(
    keys: RunKeys, *, keep: bool, remembered_ms: int, epoch: int | None, batches: Sequence[EndedLease]
) -> None: ...


@script
def change_lease(
    keys: RunKeys, *, lease_states: str, batch_id: str, seen: str, new: str, notify: bool, epoch: int | None
) -> None: ...


@script
def commit_batch(
    keys: RunKeys,
    *,
    lane_keys: Sequence[str],
    batch_id: str,
    lease: str,
    manifest: str,
    epoch: int,
    step: int,
    policy_version: int,
    debts: str,
    clock_ms: int,
    relaxed: bool,
    balance: str | None,
    delays: str | None,
    replayed_ids: Sequence[str],
    scarce: str,
    record: str,
    most_records: int,
    seen_debts: Mapping[int, int],
    queued_groups: Sequence[PlannedRow],
) -> None: ...


@script
def discard_batch(
    keys: RunKeys,
    *,
    batch_id: str,
    seen: str,
    step: int,
    reason: str,
    remembered_ms: int,
    debt_changes: Sequence[tuple[int, int]],
) -> None: ...


@script
def release_kept_batches(
    keys: RunKeys,
    *,
    checkpoint: int | None,
    policy_version: int | None,
    rewinds: int | None,
    batch_ids: Sequence[str],
) -> None: ...


@script
def requeue_batch(
    keys: RunKeys,
    *,
    lane_keys: Sequence[str],
    batch_id: str,
    seen: str,
    lease_id: str,
    step: int,
    remembered_ms: int,
    debt_changes: Sequence[tuple[int, int]],
    queued_groups: Sequence[RequeuedRow],
) -> None: ...


@script
def rewind_run(
    keys: RunKeys,
    *,
    step: int,
    seen_step: int,
    seen_rewinds: int,
    policy_version: int,
    request_id: str,
    batches: Sequence[RewoundLease],
) -> None: ...
