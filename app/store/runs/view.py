"""Read a run without its queue in one round trip, in parts: the run, the activity of environments, their counts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple

from app.core.batches.leases import Lease
from app.core.environments.record import EnvironmentRecord
from app.core.model import LaneId
from app.core.ranks.sharding import Balance, BalanceHistory, Undivided
from app.core.runs.counters import KeptBatches, RunTotals, Sent, Starvation, Trained, VersionCycle
from app.core.runs.settings import Policy, RunConfig
from app.store.redis.keys import NONE, PROCESSES, RunKeys, parse_lane_name
from app.store.redis.pipeline import Command
from app.store.runs.clock import CLOCK_COMMANDS, Now
from app.store.runs.lease_codec import parse_lease
from lachesis.wire.errors import UnreadableRecord

_MOST_SHOWN = 200  # characters of an error message
_MOST_PARSED = 256  # different settings to remember: they are read with each view of a run
_MOST_SCARCE_PARSED = 16
_NONE = NONE.encode()
_TOTALS = tuple(RunTotals.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The settings and the progress of a run. The fields are those of `app.core.runs.view.RunView`."""

    config: RunConfig
    policy: Policy
    step: int
    policy_version: int
    rewinds: int


def queue_commands(keys: RunKeys) -> list[Command]:
    """Return the commands whose replies `QueueReplies` names.

    The run comes before its leases. So a commit in between shows as a step that changed.
    """
    workers: Command = ("ZRANGE", PROCESSES, 0, -1, "WITHSCORES")
    hashes = ("HGETALL", keys.run), ("HGETALL", keys.lanes), ("HGETALL", keys.buffers), ("HGETALL", keys.lease_states)
    return [*CLOCK_COMMANDS, *hashes, ("HLEN", keys.environments), workers, ("ZCARD", keys.kept_steps)]


def activity_commands(keys: RunKeys) -> list[Command]:
    """Return the commands whose replies `read_activity` reads."""
    return [("HGETALL", keys.seen), ("HGETALL", keys.member_counts)]


def count_commands(keys: RunKeys) -> list[Command]:
    """Return the commands whose replies `read_counts` reads."""
    return [("HGETALL", key) for key in (keys.served, keys.dropped, keys.ledger, keys.sent, keys.starvation)]


Hash = Mapping[bytes, bytes]
"""A hash as Redis answers it."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The last signs of life of environments, and their live members.

    Attributes:
        heard_ms: Run clock at the last sign of life, milliseconds, by id.
        members: Live members, by id.
    """

    heard_ms: Mapping[int, int]
    members: Mapping[int, int]


class QueueReplies(NamedTuple):
    """The replies to `queue_commands`."""

    time: Sequence[bytes]
    service: Sequence[bytes | None]
    run: Hash
    lanes: Hash
    buffers: Hash
    leases: Hash
    environments: int
    workers: Sequence[tuple[bytes, float]]
    kept: int

    @property
    def epoch(self) -> int:
        """The epoch of the run."""
        return int(self.run.get(b"epoch", 0))


def read_activity(seen: Hash, member_counts: Hash) -> Activity:
    """Parse the replies to `activity_commands`."""
    return Activity(read_numbers(seen), read_numbers(member_counts))


def read_numbers(by_environment: Hash) -> dict[int, int]:
    """Read a hash of numbers by environment."""
    return {int(key): int(value) for key, value in by_environment.items()}


def read_counts(served: Hash, dropped: Hash, ledger: Hash, sent: Hash, starvation: Hash) -> dict[str, Any]:
    """Read what Redis answered to `count_commands`, by field of `RunView`."""
    return {
        "served": {_environment(key): int(count) for key, count in served.items()},
        "dropped": _by_state(dropped),
        "tokens": _by_state(ledger),
        "sent": {int(key): parse_sent(text) for key, text in sent.items()},
        "starvation": parse_starvation(_texts(starvation)),
    }


def read_queue(replies: QueueReplies, environments: Mapping[int, EnvironmentRecord]) -> dict[str, Any]:
    """Read a run and its environments, by field of `QueueView`."""
    run, now = _texts(replies.run), Now(replies.time, replies.service)
    clock_ms, leases = now.run_clock(run), _leases(replies.leases)
    return {
        "config": parse_config(run["config"]) if "config" in run else None,
        "epoch": replies.epoch,
        "first_epoch": int(run.get("first_epoch", 0)),
        "step": int(run.get("step", 0)),
        "started": run.get("started") == "1",
        "clock_ms": clock_ms,
        "environments": environments,
        "lanes": _lanes(replies.lanes),
        "buffers": _lanes(replies.buffers),
        "leases": leases,
        "workers": {worker.decode(): clock_ms - (now.service_ms - int(ms)) for worker, ms in replies.workers},
        "totals": RunTotals(**{name: int(run.get(name, 0)) for name in _TOTALS}),
        "debts": {int(key): owed for key, owed in json.loads(run.get("debts", "{}")).items()},
        "conflict_since_ms": _optional_int(run.get("conflict_since_ms")),
        "last_batch_ms": _optional_int(run.get("last_batch_ms")),
        "relaxed_batches": int(run.get("relaxed_batches", 0)),
        "latest": run.get("latest"),
        "policy": parse_policy(run.get("policy")),
        "policy_version": int(run.get("policy_version", 0)),
        "rewinds": int(run.get("rewinds", 0)),
        "rewound_by": run.get("rewound_by", ""),
        "rewound_to": _optional_int(run.get("rewound_to")),
        "kept": KeptBatches(
            _optional_int(run.get("checkpoint")),
            _optional_int(run.get("unkept_step")),
            replies.kept,
            int(run.get("kept_bytes", 0)),
            _optional_int(run.get("checkpoint_version")),
        ),
        "balance": _balance(run.get("balance")),
        "delays": json.loads(run.get("delays", "{}")),
        "next_environment": int(run.get("next_environment", 0)),
        "unfilled": "unfilled" in run,
        "undivided": Undivided(**json.loads(run["undivided"])) if "undivided" in run else None,
        "scarce": _parse_scarce(run.get("scarce", "{}")),
        "began_ms": int(run.get("reset_ms", 0)),
        "waited_ms": _optional_int(run.get("waited_ms")),
        "trained": Trained(
            max(int(run.get("trained_batches", 0)), -sum(lease.state == "held" for lease in leases)),
            int(run.get("trained_ms", 0)),
            int(run.get("trained_in_a_row", 1)),
            float(run.get("batch_versions", 1)),
            VersionCycle(*json.loads(run.get("version_cycle", "[]"))),
        ),
    }


def summary_command(keys: RunKeys) -> Command:
    """Return the command whose reply `read_summary` reads."""
    return ("HMGET", keys.run, "config", "policy", "step", "policy_version", "rewinds")


def read_summary(reply: Sequence[bytes | None]) -> RunSummary | None:
    """Parse the reply to `summary_command`; None if the run does not exist."""
    config, policy, step, version, rewinds = reply
    if config is None:
        return None
    return RunSummary(parse_config(config), parse_policy(policy), int(step or 0), int(version or 0), int(rewinds or 0))


def parse_environment(record: str | bytes) -> EnvironmentRecord:
    """Read an environment's JSON record; its activity is elsewhere."""
    fields: dict[str, Any] = json.loads(record)
    del fields["token"]
    return EnvironmentRecord(**fields)


class reading:  # noqa: N801 - a context manager, as of the standard library
    """Name the run in errors of records that cannot be read.

    Raises:
        UnreadableRecord: Redis holds a record that this service cannot have written.
    """

    __slots__ = ("_run",)

    def __init__(self, run: str) -> None:
        self._run = run

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, (ValueError, TypeError, KeyError, AttributeError)):
            why = f"{type(error).__name__}: {error}"[:_MOST_SHOWN]
            cure = f"repair its keys in Redis, or remove it with DELETE /v1/runs/{self._run}"
            raise UnreadableRecord(f"a record of run {self._run} cannot be read ({why}): {cure}") from error


def _optional_int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _texts(a_hash: Hash) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in a_hash.items()}


def _lanes(a_hash: Hash) -> dict[LaneId, int]:
    return {parse_lane_name(name): int(count) for name, count in a_hash.items()}


def _leases(a_hash: Hash) -> tuple[Lease, ...]:
    leases = (parse_lease(batch_id.decode(), text.decode()) for batch_id, text in a_hash.items())
    return tuple(sorted(leases, key=lambda lease: lease.step))


@lru_cache(maxsize=_MOST_PARSED)
def parse_config(text: str | bytes) -> RunConfig:
    """Read the JSON of a configuration."""
    return RunConfig.model_validate_json(text)


@lru_cache(maxsize=_MOST_PARSED)
def parse_policy(text: str | bytes | None) -> Policy:
    """Read the JSON of a policy; the default one where there is none."""
    if text is None:
        return Policy()
    return Policy.model_validate_json(text)


@lru_cache(maxsize=_MOST_SCARCE_PARSED)
def _parse_scarce(text: str) -> Mapping[int, int]:
    """Read since when batches wait for environments. It seldom changes, and may name thousands of them."""
    return {int(key): since_ms for key, since_ms in json.loads(text).items()}


def balance_text(history: BalanceHistory) -> str:
    """Encode the history of balances."""
    return json.dumps(asdict(history))


def _balance(text: str | None) -> BalanceHistory | None:
    if text is None:
        return None
    fields: dict[str, Any] = json.loads(text)
    return BalanceHistory(**fields | {"last": Balance(**fields["last"])})


def parse_starvation(a_hash: Mapping[str, str]) -> Starvation:
    """Read what came since the last trainable group."""
    counts = {name: int(value) for name, value in a_hash.items()}
    return Starvation(counts.pop("since_ms", 0), counts.pop("sequences", 0), counts)


def parse_sent(text: bytes) -> Sent:
    """Parse what an environment has sent."""
    return Sent(*map(int, text.split()))


def sent_text(sent: Sent) -> str:
    """Encode what an environment has sent, for `parse_sent`."""
    return f"{sent.last_ms} {sent.last_size} {sent.sequences}"


def _environment(key: bytes) -> int | None:
    return None if key == _NONE else int(key)


def _by_state(a_hash: Hash) -> dict[tuple[str, int | None], int]:
    counts = {}
    for key, count in a_hash.items():
        state, environment = key.split(b":")
        counts[state.decode(), _environment(environment)] = int(count)
    return counts
