"""Read a run without its queue in one round trip, as one frozen value."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from types import TracebackType
from typing import Any

from app.core.batches.leases import Lease, LeaseState
from app.core.environments.record import EnvironmentRecord
from app.core.errors import UnreadableRecord
from app.core.model import LaneId
from app.core.ranks.sharding import Balance, BalanceHistory, EndedBy, Sharding, ShardingSpec, Undivided
from app.core.runs.counters import KeptBatches, RunTotals, Sent, Starvation, Trained
from app.core.runs.settings import Policy
from app.core.runs.view import RunConfig, RunView
from app.store.redis.keys import NONE, RunKeys, parse_lane_name
from app.store.redis.pipeline import Command

_MOST_SHOWN = 200  # characters of an error message
_LONGEST_CLOCK_STEP_MS = 3000
_LEASE_FIELDS = tuple(field.name for field in fields(Lease) if field.name != "batch_id")
_lease_values = attrgetter(*_LEASE_FIELDS)  # `asdict` would copy them, at ten times the cost
_TOTALS = tuple(RunTotals.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run is set to, and how far it is; the fields are those of `app.core.runs.view.RunView`."""

    config: RunConfig
    policy: Policy
    step: int
    policy_version: int
    rewinds: int


def view_commands(keys: RunKeys) -> list[Command]:
    """Return the commands whose replies `read_view` reads.

    The run comes before its leases. So a commit in between shows as a step that changed.
    """
    hashes = [keys.run, keys.environments, keys.seen, keys.lanes, keys.buffers]
    hashes += [
        keys.lease_states,
        keys.served,
        keys.dropped,
        keys.sent,
        keys.running,
        keys.member_counts,
        keys.starvation,
    ]
    workers: Command = ("ZRANGE", keys.workers, 0, -1, "WITHSCORES")
    return [("TIME",), *(("HGETALL", key) for key in hashes), workers, ("ZCARD", keys.kept_steps)]


def read_view(replies: Sequence[Any]) -> RunView:
    """Read what Redis answered to `view_commands`."""
    time, *hashes, workers, kept = replies
    texts = ({key.decode(): value.decode() for key, value in a_hash.items()} for a_hash in hashes)
    return _view(time, *texts, workers={worker.decode(): int(ms) for worker, ms in workers}, kept=kept)


def summary_command(keys: RunKeys) -> Command:
    """Return the command whose reply `read_summary` reads."""
    return ("HMGET", keys.run, "config", "policy", "step", "policy_version", "rewinds")


def read_summary(reply: Sequence[bytes | None]) -> RunSummary | None:
    """Read what Redis answered to `summary_command`; None if nobody has made the run."""
    config, policy, step, version, rewinds = reply
    if config is None:
        return None
    return RunSummary(parse_config(config), parse_policy(policy), int(step or 0), int(version or 0), int(rewinds or 0))


def parse_environment(record: str | bytes, heard_ms: int | None = None, members: int = 0) -> EnvironmentRecord:
    """Read an environment's JSON record."""
    fields: dict[str, Any] = json.loads(record)
    del fields["token"]
    return EnvironmentRecord(**fields, heard_ms=heard_ms, members=members)


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


def run_clock(time: Sequence[bytes], run: Mapping[str, str] | Mapping[str, int]) -> int:
    """Return the run clock as `lua/lib/clock.lua` would advance it now, without writing it down."""
    seconds, microseconds = map(int, time)
    now = seconds * 1000 + microseconds // 1000
    passed = now - int(run.get("time_ms", now))
    return int(run.get("clock_ms", 0)) + min(max(passed, 0), _LONGEST_CLOCK_STEP_MS)


def _optional_int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _lanes(a_hash: Mapping[str, str]) -> dict[LaneId, int]:
    return {parse_lane_name(name): int(count) for name, count in a_hash.items()}


def parse_lease(batch_id: str, text: str) -> Lease:
    """Read the JSON of a lease."""
    fields: dict[str, Any] = json.loads(text)
    contents = tuple((environment, groups, sequences) for environment, groups, sequences in fields["contents"])
    replayed = tuple((environment, groups, sequences) for environment, groups, sequences in fields["replayed"])
    parsed: dict[str, Any] = {"state": LeaseState(fields["state"]), "sharding": _sharding(fields["sharding"])}
    parsed |= {"contents": contents, "replayed": replayed}
    parsed["debts"] = tuple((environment, change) for environment, change in fields["debts"])
    return Lease(batch_id=batch_id, **fields | parsed)


def _sharding(fields: dict[str, Any] | None) -> Sharding | None:
    if fields is None:
        return None
    spec = ShardingSpec(**fields["spec"] | {"ended_by": EndedBy(fields["spec"]["ended_by"])})
    ranks = {name: tuple(fields[name]) for name in ("taken", "acknowledged")}
    return Sharding(**fields | ranks | {"spec": spec, "balance": Balance(**fields["balance"])})


def lease_text(lease: Lease) -> str:
    """Invert `parse_lease`; equal leases give equal text."""
    values = dict(zip(_LEASE_FIELDS, _lease_values(lease), strict=True))
    values["sharding"] = lease.sharding and _sharding_values(lease.sharding)
    return json.dumps(values, separators=(",", ":"))


def _sharding_values(sharding: Sharding) -> dict[str, Any]:
    """As `dataclasses.asdict`, which copies each of thousands of ranks."""
    values = {field.name: getattr(sharding, field.name) for field in fields(Sharding)}
    return values | {"spec": asdict(sharding.spec), "balance": asdict(sharding.balance)}


def parse_config(text: str | bytes) -> RunConfig:
    """Read the JSON of a configuration."""
    return RunConfig(**json.loads(text))


def parse_policy(text: str | bytes | None) -> Policy:
    """Read the JSON of a policy; the default one where there is none."""
    if text is None:
        return Policy()
    return Policy.model_validate_json(text)


def balance_text(history: BalanceHistory) -> str:
    """Write down how evenly batches were divided."""
    return json.dumps(asdict(history))


def _balance(text: str | None) -> BalanceHistory | None:
    if text is None:
        return None
    fields: dict[str, Any] = json.loads(text)
    return BalanceHistory(**fields | {"last": Balance(**fields["last"])})


def parse_starvation(a_hash: Mapping[str, str]) -> Starvation:
    """Read what came since the last group that was stored."""
    counts = {name: int(value) for name, value in a_hash.items()}
    return Starvation(counts.pop("since_ms", 0), counts.pop("sequences", 0), counts)


def parse_sent(text: str) -> Sent:
    """Parse what an environment has sent."""
    return Sent(*map(int, text.split()))


def sent_text(sent: Sent) -> str:
    """Invert `parse_sent`."""
    return f"{sent.last_ms} {sent.last_size} {sent.sequences}"


def _environment(key: str) -> int | None:
    return None if key == NONE else int(key)


def _dropped(a_hash: Mapping[str, str]) -> dict[tuple[str, int | None], int]:
    counts = {}
    for key, count in a_hash.items():
        reason, environment = key.split(":")
        counts[reason, _environment(environment)] = int(count)
    return counts


def _view(
    time: Sequence[bytes],
    run: dict[str, str],
    environments: dict[str, str],
    seen: dict[str, str],
    lanes: dict[str, str],
    buffers: dict[str, str],
    leases: dict[str, str],
    served: dict[str, str],
    dropped: dict[str, str],
    sent: dict[str, str],
    running: dict[str, str],
    member_counts: dict[str, str],
    starvation: dict[str, str],
    *,
    workers: dict[str, int],
    kept: int,
) -> RunView:
    return RunView(
        config=parse_config(run["config"]) if "config" in run else None,
        epoch=int(run.get("epoch", 0)),
        step=int(run.get("step", 0)),
        started=run.get("started") == "1",
        clock_ms=run_clock(time, run),
        environments={
            int(key): parse_environment(record, _optional_int(seen.get(key)), int(member_counts.get(key, 0)))
            for key, record in sorted(environments.items(), key=lambda item: int(item[0]))
        },
        lanes=_lanes(lanes),
        buffers=_lanes(buffers),
        leases=tuple(sorted((parse_lease(*item) for item in leases.items()), key=lambda lease: lease.step)),
        workers=workers,
        served={_environment(key): int(count) for key, count in served.items()},
        dropped=_dropped(dropped),
        totals=RunTotals(**{name: int(run.get(name, 0)) for name in _TOTALS}),
        debts={int(key): owed for key, owed in json.loads(run.get("debts", "{}")).items()},
        conflict_since_ms=_optional_int(run.get("conflict_since_ms")),
        last_batch_ms=_optional_int(run.get("last_batch_ms")),
        relaxed_batches=int(run.get("relaxed_batches", 0)),
        latest=run.get("latest"),
        policy=parse_policy(run.get("policy")),
        policy_version=int(run.get("policy_version", 0)),
        rewinds=int(run.get("rewinds", 0)),
        kept=KeptBatches(
            _optional_int(run.get("checkpoint")),
            _optional_int(run.get("unkept_step")),
            kept,
            int(run.get("kept_bytes", 0)),
            _optional_int(run.get("checkpoint_version")),
        ),
        sent={int(key): parse_sent(text) for key, text in sent.items()},
        running={int(key): int(count) for key, count in running.items()},
        balance=_balance(run.get("balance")),
        delays=json.loads(run.get("delays", "{}")),
        starvation=parse_starvation(starvation),
        next_environment=int(run.get("next_environment", 0)),
        unfilled="unfilled" in run,
        undivided=Undivided(**json.loads(run["undivided"])) if "undivided" in run else None,
        scarce={int(key): since_ms for key, since_ms in json.loads(run.get("scarce", "{}")).items()},
        trained=Trained(
            int(run.get("trained_batches", 0)),
            int(run.get("trained_ms", 0)),
            int(run.get("trained_per_version", 1)),
        ),
    )
