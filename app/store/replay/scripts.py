"""The scripts of the replay buffer; each Lua file says what its keys and arguments mean."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from app.core.replay.sampling import ChunkDraw
from app.store.redis.keys import SAVED_PARTS, ReplayKeys, RunKeys
from app.store.redis.scripts import script

InsertOutcome = Literal["inserted", "outdated", "blocked", "crowded", "full"]
"""What `insert_fragments` returns."""

GroupInsertionOutcome = Literal["taken", "outdated", "crowded"]
"""What `insert_groups` returns."""


class ReplayPlace(NamedTuple):
    """The keys of the buffer or of a snapshot, and the name that its fragments get as a marked hash."""

    replay: str
    chunks: str
    order: str
    weights: str
    versions: str
    uses: str
    reserved: str
    reserved_order: str
    reserved_weights: str
    reserved_uses: str
    archived: str
    version_counts: str
    fragments: str
    workers: str
    due: str
    samples: str
    sample_states: str
    requests: str
    entering: str
    marked_hash: str


class PriorityRow(NamedTuple):
    """A chunk's new priority and weight, and the priority that it must have had; empty for any."""

    chunk_id: str
    priority: str
    weight: int
    before: str


def place(keys: ReplayKeys, token: str) -> ReplayPlace:
    """Return the place of a buffer or a snapshot, with a marked hash of this token."""
    parts = {str(part): keys.part(part) for part in SAVED_PARTS}
    return ReplayPlace(**parts, marked_hash=keys.run_keys.marked_hash(token))


@script
def delete_replay(keys: RunKeys, *, places: Sequence[ReplayPlace], decided_on: str, tokens: Sequence[str]) -> None: ...


@script
def drop_snapshot(keys: RunKeys, *, places: Sequence[ReplayPlace], revision: str, token: str) -> None: ...


@script
def end_sample(
    keys: ReplayKeys,
    *,
    sample_id: str,
    seen: str,
    outcome: str,
    max_reuse: int | None,
    lease_id: str | None,
    memory_ms: int,
    revision: str,
) -> None: ...


@script
def find_spread_chunks(keys: ReplayKeys, *, ranks: Sequence[int]) -> None: ...


@script
def insert_fragments(
    keys: ReplayKeys,
    *,
    payloads: Sequence[str],
    worker: str,
    seen: str,
    new: str,
    due_ms: int | None,
    revision: str,
    policy_version: int,
    most_inserts: int | None,
    max_chunks: int,
    max_bytes: int | None,
    most_workers: int,
    score_if_absent: int,
    plan: Mapping[str, Any],
) -> None: ...


@script
def insert_groups(
    keys: ReplayKeys,
    *,
    revision: str,
    policy_version: int,
    max_chunks: int,
    max_bytes: int | None,
    plan: Mapping[str, Any],
    group_ids: Sequence[str],
) -> None: ...


@script
def place_chunks(keys: ReplayKeys, *, revision: str, max_reuse: int | None, chunk_ids: Sequence[str]) -> None: ...


@script
def prepare_snapshot(keys: ReplayKeys, *, revision: str, max_reuse: int | None, chunk_ids: Sequence[str]) -> None: ...


@script
def put_replay(keys: RunKeys, *, decided_on: str, config: str, session: int, offset: str, settle: bool) -> None: ...


@script
def restore_snapshot(
    keys: ReplayKeys,
    *,
    places: Sequence[ReplayPlace],
    token: str,
    decided_on: str,
    policy_version: int,
    snapshot_revision: str,
    max_reuse: int | None,
    memory_ms: int,
    settle: bool,
) -> None: ...


@script
def retire_chunks(keys: ReplayKeys, *, reason: str, revision: str | None, chunk_ids: Sequence[str]) -> None: ...


@script
def take_sample(
    keys: ReplayKeys,
    *,
    sample_id: str,
    lease: str,
    revision: str,
    policy_version: int,
    random_counter: int,
    new_counter: int,
    wanted: int,
    max_reuse: int | None,
    oldest_version: int,
    oldest_ms: int,
    session: int,
    most_samples: int | None,
    drawn_on: str,
    request_id: str,
    draws: Sequence[ChunkDraw],
) -> None: ...


@script
def take_snapshot(
    keys: RunKeys,
    *,
    places: Sequence[ReplayPlace],
    decided_on: str,
    policy_version: int,
    name: str,
    clock_ms: int,
    tokens: Sequence[str],
) -> None: ...


@script
def update_priorities(keys: ReplayKeys, *, revision: str, priorities: Sequence[PriorityRow]) -> None: ...
