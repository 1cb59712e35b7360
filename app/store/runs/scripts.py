"""The scripts of runs; each Lua file says what its keys and arguments mean."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.store.redis.keys import RunKeys, ServiceKeys
from app.store.redis.scripts import script


class LeaseChange(NamedTuple):
    """A lease as it was read, and as it is from now on: JSON."""

    batch_id: str
    seen: str
    new: str


class RenamedHash(NamedTuple):
    """A hash that names payloads, and its name as a marked hash."""

    hash: str
    marked_hash: str


@script
def announce_run(keys: RunKeys, *, name: str, most_runs: int) -> None: ...


@script
def ask_turn(keys: RunKeys, *, worker: str, turn_ms: int) -> None: ...


@script
def pass_turn(keys: RunKeys, *, worker: str, turn_ms: int, again: bool) -> None: ...


@script
def forget_run(keys: RunKeys, *, all_held: Sequence[str], name: str) -> None: ...


@script
def put_run(
    keys: RunKeys,
    *,
    epoch: int,
    config: str,
    policy: str,
    step: int | None,
    aging: bool,
    remembered_ms: int,
    made_by: str,
    name: str,
    rate_limits: str,
) -> None: ...


@script
def register_trainer(
    keys: RunKeys, *, epoch: int, step: int, config: str, starting_step: int | None, leases: Sequence[LeaseChange]
) -> None: ...


@script
def reset_run(
    keys: RunKeys,
    *,
    payload_hashes: Sequence[RenamedHash],
    deleted: Sequence[str | bytes],
    spare_native: bool,
    spare_archived: bool,
    tokens: Sequence[str],
    name: str,
    epoch: str | bytes,
    names: Sequence[bytes],
) -> None: ...


@script
def drop_damaged(keys: RunKeys, *, hashes: Sequence[str]) -> None: ...


@script
def delete_strays(keys: RunKeys, *, strays: Sequence[bytes], payloads: Sequence[bytes]) -> None: ...


@script
def set_group_versions(keys: RunKeys, *, epoch: int, policy_version: int, limit: int) -> None: ...


@script
def set_policy_version(
    keys: RunKeys,
    *,
    policy_version: int,
    decided_on: int,
    trained_batches: int,
    trained_in_a_row: int,
    versions_per_batch: float,
    version_cycle: str,
    rewinds: int | None,
) -> None: ...


@script
def set_run_field(keys: RunKeys, *, record: str, field: str, value: str | int, keep: bool) -> None: ...


@script
def note_waiting(keys: RunKeys) -> None: ...


@script
def request_sweep(keys: RunKeys) -> None: ...


@script
def finish_request(keys: RunKeys, *, record: str, field: str, seen: str | int) -> None: ...


@script
def beat_process(keys: ServiceKeys, *, process: str, patience_ms: int, forgotten_ms: int) -> None: ...


@script
def remove_process(keys: ServiceKeys, *, process: str) -> None: ...


@script
def record_heartbeats(keys: RunKeys, *, environments_heard: Mapping[int, int], members_seen: Sequence[str]) -> None: ...


@script
def tick(
    keys: RunKeys,
    *,
    name: str,
    term: int | None,
    kept_after_reset_ms: int,
    member_ttl_ms: int,
    remembered_ms: int,
    shortest_sleep_ms: int,
    longest_sleep_ms: int,
    awaited_ms: int,
    most_events: int,
    last_tick_ms: int | None,
    work_ms: int | None,
) -> None: ...
