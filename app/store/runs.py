"""Runs: their view, configuration, environments, clock, and end."""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import starmap
from typing import Any

from app.core.errors import InvalidField
from app.core.model import Environment, LaneId, Lease, LeaseState, RunConfig, RunView, Totals
from app.store import scripts
from app.store.connection import Connection, Pipeline
from app.store.keys import NO_ENVIRONMENT, RUNS, RunKeys, lane_name, parse_lane_name

MOST_RUNS = 1000
_ANY_NUMBER = 2**53
_RECOGNISED_FOR_MS = 120_000  # a repeated submission is recognised this long; far longer than any retry lasts
_LONGEST_CLOCK_STEP_MS = 30_000
_TOTALS = tuple(Totals.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Roster:
    """The environments of a run, as of an epoch; their `heard_ms` is not filled in."""

    epoch: int
    environments: Mapping[int, Environment]


@dataclass(frozen=True, slots=True)
class Tick:
    """What a tick tells of a run, so that a run with nothing to do costs no further look.

    Attributes:
        clock_ms: The run clock, milliseconds; 0 if the run is not there.
        buffered: Whether groups wait in buffers.
        unindexed: Whether there are payloads that no index entry names.
        trash: Whether payloads of a reset are still to be removed.
        leased: Whether there are batches that were taken and have not ended.
        held: Whether the run holds anything at all.
    """

    clock_ms: int
    buffered: bool
    unindexed: bool
    trash: bool
    leased: bool
    held: bool


class RunStore:
    """Reads and changes what a run is, not what is in its queue."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def names(self) -> list[str]:
        """Return the names of all runs that have any state, sorted."""
        members = await self._connection.call("SMEMBERS", RUNS)
        return sorted(name.decode() for name in members)

    async def announce(self, run: str) -> None:
        """Note that ``run`` exists, so that every API process looks after it.

        Raises:
            InvalidField: There are as many runs as we look after.
        """
        if not await self._connection.run("announce_run", [RUNS], [run, MOST_RUNS]):
            raise InvalidField(f"there are {MOST_RUNS} runs, and no more are taken", ("run",))

    async def view(self, run: str) -> RunView:
        """Read the run without its queue, in one round trip."""
        keys = RunKeys(run)

        def fill(pipe: Pipeline) -> None:
            pipe.time()
            for hash_key in (keys.run, keys.environments, keys.seen, keys.lanes, keys.buffers):
                pipe.hgetall(hash_key)
            for hash_key in (keys.lease_states, keys.served, keys.dropped):
                pipe.hgetall(hash_key)
            pipe.zrange(keys.workers, 0, -1, withscores=True)

        time, *hashes, workers = await self._connection.pipeline(fill)
        return _view(time, *(_text(a_hash) for a_hash in hashes), workers={w.decode(): int(ms) for w, ms in workers})

    async def roster(self, run: str) -> Roster:
        """Read who is registered, and the epoch that this is true of."""
        keys = RunKeys(run)

        def fill(pipe: Pipeline) -> None:
            pipe.hget(keys.run, "epoch")
            pipe.hgetall(keys.environments)

        # The epoch first: if environments change in between, the older epoch is found to be outdated.
        epoch, records = await self._connection.pipeline(fill)
        return Roster(int(epoch or 0), {int(key): parse_environment(record) for key, record in records.items()})

    async def register(self, run: str, config: RunConfig) -> bool:
        """Set the run's configuration, and return every batch a former trainer has not acknowledged.

        Returns:
            Whether the configuration is new. The same one again changes nothing: the step goes on.
        """
        keys = RunKeys(run)
        script, announce = scripts.load("register_trainer").digest, scripts.load("announce_run").digest
        text = json.dumps(asdict(config), sort_keys=True)

        def fill(pipe: Pipeline) -> None:
            pipe.evalsha(script, 2, keys.run, keys.lease_states, text, config.starting_step)
            # Announced already, but it may have been forgotten since. From here on it holds something. (No SADD, as
            # Redis refuses that when memory is full, and then a trainer must be able to empty the queue.)
            pipe.evalsha(announce, 1, RUNS, run, _ANY_NUMBER)

        return bool((await self._connection.pipeline(fill))[0])

    async def start(self, run: str) -> None:
        """Note that the trainer has asked for its first batch: environments may register now."""
        await self._connection.run("note_field", [RunKeys(run).run], ["started", 1, 0])

    async def put_environment(self, run: str, environment: Environment, epoch: int) -> bool:
        """Write an environment's record. Without a `heard_ms`, signs of life of whoever had its id are forgotten.

        Returns:
            False if any environment or the configuration changed since ``epoch``: look again, decide again.
        """
        keys = RunKeys(run)
        # The token makes the record unlike any other: sent again after a lost reply, it is recognised.
        record = asdict(environment) | {"token": uuid.uuid4().hex}
        del record["heard_ms"]
        written = await self._connection.run(
            "put_environment",
            [keys.run, keys.environments, keys.seen],
            [epoch, environment.environment, json.dumps(record), int(environment.heard_ms is None)],
        )
        return bool(written)

    async def note_conflict(self, run: str, since_ms: int | None) -> None:
        """Remember since when minimums have been impossible together, or (None) that they are not."""
        keys = RunKeys(run)
        if since_ms is None:
            await self._connection.call("HDEL", keys.run, "conflict_since_ms")
        else:
            # The first observer's time counts: others must not start the wait anew.
            await self._connection.run("note_field", [keys.run], ["conflict_since_ms", since_ms, 1])

    async def tick(self, run: str, worker: str, heard_of: Iterable[int]) -> Tick:
        """Move the run clock on and note who is alive."""
        return (await self.tick_all(worker, {run: heard_of}))[run]

    async def tick_all(self, worker: str, heard_of: Mapping[str, Iterable[int]]) -> dict[str, Tick]:
        """Tick runs in one round trip.

        Args:
            worker: This API process.
            heard_of: The runs, and which environments gave signs of life in each.

        Raises:
            StoreRefused: A key of one run is of another type; the others have been ticked.
        """
        script = scripts.load("tick").digest

        def fill(pipe: Pipeline) -> None:
            for run, environments in heard_of.items():
                keys = RunKeys(run)
                own = [keys.run, keys.workers, keys.seen, keys.environments, keys.recent, keys.buffers]
                own += [keys.unindexed, keys.trash, keys.lease_states, keys.groups]
                pipe.evalsha(script, len(own), *own, worker, _RECOGNISED_FOR_MS, *environments)

        replies = await self._connection.pipeline(fill) if heard_of else []
        return {run: Tick(clock, *map(bool, facts)) for run, (clock, *facts) in zip(heard_of, replies, strict=True)}

    async def forget(self, run: str) -> bool:
        """Let a run that holds nothing disappear, its name included; False if it holds something.

        Nobody is locked out meanwhile. Whoever makes a run hold something therefore puts its name into the set
        afterwards, however sure of it (`register`, and `app.store.groups.GroupStore.admit`): forgetting comes before,
        and the name is put back, or after, and is refused. Commands that only change what is there (ticks, notes,
        resets, environments) do nothing to a run that is not there. And epochs do not repeat, so that what
        was decided on a run before it was forgotten is outdated in one of the same name.
        """
        keys = RunKeys(run)
        return bool(await self._connection.run("forget_run", [RUNS, keys.run, keys.workers, *keys.all_held()], [run]))

    async def reset(self, run: str, token: str) -> None:
        """Forget everything about the run but its clock. Payloads are removed in the background."""
        keys = RunKeys(run)
        while True:
            view = await self.view(run)
            queues = {f"lane {name}": keys.lane(name) for name in starmap(lane_name, view.lanes)}
            queues |= {f"buffer {name}": keys.buffer(name) for name in starmap(lane_name, view.buffers)}
            doomed = [keys.environments, keys.seen, keys.served, keys.leases, keys.lease_states, keys.dropped]
            done = await self._connection.run(
                "reset_run",
                [
                    *(keys.run, keys.groups, keys.trashed(token), keys.trash, keys.unindexed),
                    *(keys.lanes, keys.buffers, *doomed, *queues.values()),
                ],
                [token, *queues],
            )
            if done:
                return


def parse_environment(record: str | bytes, heard_ms: int | None = None) -> Environment:
    """Read an environment's JSON record."""
    fields: dict[str, Any] = json.loads(record)
    del fields["token"]
    return Environment(**fields, heard_ms=heard_ms)


def _text(a_hash: Mapping[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in a_hash.items()}


def _clock(time: Sequence[int], run: Mapping[str, str]) -> int:
    """The run clock as `lua/clock.lua` would advance it now, without writing it down."""
    now = time[0] * 1000 + time[1] // 1000
    passed = now - int(run.get("time_ms", now))
    return int(run.get("clock_ms", 0)) + min(max(passed, 0), _LONGEST_CLOCK_STEP_MS)


def _optional_int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _lanes(a_hash: Mapping[str, str]) -> dict[LaneId, int]:
    return {parse_lane_name(name): int(count) for name, count in a_hash.items()}


def parse_lease(batch_id: str, state: str) -> Lease:
    """Read a lease's ``state|worker|deliveries|step|relaxed``."""
    name, worker, deliveries, step, relaxed = state.split("|")
    return Lease(batch_id, LeaseState(name), worker, int(deliveries), int(step), relaxed == "1")


def lease_text(lease: Lease) -> str:
    """Invert `parse_lease`."""
    return f"{lease.state.value}|{lease.worker}|{lease.deliveries}|{lease.step}|{lease.relaxed:d}"


def _view(
    time: Sequence[int],
    run: dict[str, str],
    environments: dict[str, str],
    seen: dict[str, str],
    lanes: dict[str, str],
    buffers: dict[str, str],
    leases: dict[str, str],
    served: dict[str, str],
    dropped: dict[str, str],
    *,
    workers: dict[str, int],
) -> RunView:
    return RunView(
        config=RunConfig(**json.loads(run["config"])) if "config" in run else None,
        epoch=int(run.get("epoch", 0)),
        step=int(run.get("step", 0)),
        started=run.get("started") == "1",
        clock_ms=_clock(time, run),
        environments={
            int(key): parse_environment(record, _optional_int(seen.get(key)))
            for key, record in sorted(environments.items(), key=lambda item: int(item[0]))
        },
        lanes=_lanes(lanes),
        buffers=_lanes(buffers),
        leases=tuple(sorted((parse_lease(*item) for item in leases.items()), key=lambda lease: lease.step)),
        workers=workers,
        served={None if key == NO_ENVIRONMENT else int(key): int(count) for key, count in served.items()},
        dropped={reason: int(count) for reason, count in dropped.items()},
        totals=Totals(**{name: int(run.get(name, 0)) for name in _TOTALS}),
        debts={int(key): owed for key, owed in json.loads(run.get("debts", "{}")).items()},
        conflict_since_ms=_optional_int(run.get("conflict_since_ms")),
        last_batch_ms=_optional_int(run.get("last_batch_ms")),
        relaxed_batches=int(run.get("relaxed_batches", 0)),
        latest=run.get("latest"),
    )
