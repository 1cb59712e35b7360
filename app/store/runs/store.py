"""Read and change runs: their configuration, policy, environments, clock, and end."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, Literal

from app.core.access.rate_limits import limits_of
from app.core.batches.leases import after_registration
from app.core.environments.live import EnvironmentsById
from app.core.environments.record import EnvironmentRecord
from app.core.ranks.sharding import Undivided
from app.core.runs.counters import Trained
from app.core.runs.settings import Policy, RunConfig
from app.core.runs.view import DemandView, QueueView, RunView
from app.store.access.rate_limits import limits_text
from app.store.environments.records import EnvironmentRecords, SharedEnvironments
from app.store.events.store import MOST_EVENTS
from app.store.groups.admission_context import AdmissionContext, read_admission_context
from app.store.redis.client import RedisClient
from app.store.redis.compare_and_swap import Attempts
from app.store.redis.keys import RUNS, RunKeys, member_name, parse_member_name, run_names
from app.store.redis.pipeline import Command
from app.store.redis.scripts import json_text
from app.store.redis.settings_text import settings_text
from app.store.runs import scripts
from app.store.runs.lease_codec import lease_text, stored_text
from app.store.runs.removal import hash_token, part_commands, reset_command
from app.store.runs.senders import with_sent
from app.store.runs.tick import NO_TICK, LastTick, PendingHeartbeats, Tick
from app.store.runs.view import (
    Activity,
    QueueReplies,
    RunSummary,
    activity_commands,
    count_commands,
    queue_commands,
    read_activity,
    read_counts,
    read_numbers,
    read_queue,
    read_summary,
    reading,
    summary_command,
)
from lachesis.wire.errors import RunNotFound, RunRewound, TooManyRuns
from lachesis.wire.limits import RunLimitSettings

ResetOutcome = Literal["reset", "spared", "overtaken"]
"""``spared``: the run was left alone, as asked. ``overtaken``: another request has reset or deleted the run since."""

MOST_RUNS = 1000
_ANY_NUMBER = 2**53
_KEPT_AFTER_RESET_MS = 120_000  # longer than a command from before a reset may be repeated
_SHORTEST_SLEEP_MS = 30_000  # a sleeping run may forget things this much later
_LONGEST_SLEEP_MS = 1_800_000
_AWAITED_MS = 30_000  # how long a run stays awake after a trainer was noted to wait


class RunStore:
    """Reads and changes a run: its settings, counts and leases, but not its groups.

    Attributes:
        records: The records of environments that this process knows.
    """

    def __init__(self, connection: RedisClient, environment_ttl_ms: int, most_events: int = MOST_EVENTS) -> None:
        self._connection = connection
        self._ttl_ms = environment_ttl_ms
        self._most_events = most_events
        self.records = EnvironmentRecords(connection)
        self._environments: dict[str, SharedEnvironments] = {}

    async def names(self) -> list[str]:
        """Return the names of all runs that have any state, sorted.

        Invalid names in the set are left out. They must not stop the maintenance of the other runs.
        """
        return run_names(await self._connection.call("ZRANGE", RUNS, 0, -1))

    async def announce(self, run: str, *, new: bool = True) -> None:
        """Note that ``run`` exists, so that it is maintained.

        Args:
            run: The run's name.
            new: Whether it may be new.

        Raises:
            InvalidField: It is not the name of a run.
            TooManyRuns: It is new, and the service has `MOST_RUNS` runs.
            RunNotFound: It is new, and may not be.
        """
        name = RunKeys(run).name  # checks the name: an invalid one would stop the maintenance of all runs
        most_runs = MOST_RUNS if new else 0
        if not await self._connection.run(scripts.announce_run(RunKeys(name), name=name, most_runs=most_runs)):
            if new:
                raise TooManyRuns(f"there are {MOST_RUNS} runs, the most that a service has")
            raise RunNotFound.named(run)

    async def view(self, run: str) -> RunView:
        """Read the run without its groups, in one round trip."""
        return (await self.views([run]))[run]

    async def views(self, runs: Sequence[str]) -> dict[str, RunView]:
        """Read runs without their groups, in one round trip; a run that does not exist looks empty.

        Raises:
            StoreRefused: A key of one of them is of another type.
            UnreadableRecord: A record of one of them cannot be read.
        """
        commands = []
        for keys in map(RunKeys, runs):
            commands += [*queue_commands(keys), *activity_commands(keys), ("HGETALL", keys.running)]
            commands += count_commands(keys)
        replies = iter(await self._connection.pipeline(commands))
        views = {}
        for run in runs:
            queue = QueueReplies._make(islice(replies, len(QueueReplies._fields)))
            seen, members, running, *counts = islice(replies, 8)
            records = await self.records.of(run, queue.epoch, queue.environments)
            with reading(run):
                environments, rest = _joined(records, read_activity(seen, members)), read_counts(*counts)
                views[run] = RunView(**self._fields(queue, environments), running=read_numbers(running), **rest)
        return views

    async def queue(self, run: str, *, shared: bool = True) -> QueueView:
        """Read what batches are decided on, in one round trip that costs about the same in every run.

        In a run of many environments, what these did last may be as old as `reuse_for_s` allows, unless a record has
        changed since. So a batch may form as if it were planned that much earlier.

        Args:
            run: The run's name.
            shared: Whether requests share what environments did last. If not, the cost grows with their number.

        Raises:
            UnreadableRecord: A record cannot be read.
        """
        keys, known = RunKeys(run), self._environments.get(run)
        began_s = asyncio.get_running_loop().time()
        commands = queue_commands(keys)
        is_old = known is None or not shared or known.is_old(began_s)
        replies = await self._connection.pipeline([*commands, *activity_commands(keys)] if is_old else commands)
        queue, activity = QueueReplies._make(replies[: len(commands)]), replies[len(commands) :]
        records = await self.records.of(run, queue.epoch, queue.environments)
        if known is not None and known.records is not records and not activity:
            activity = await self._connection.pipeline(activity_commands(keys))
        with reading(run):
            if known is None or activity:
                known = SharedEnvironments(records, _joined(records, read_activity(*activity)), began_s)
                self._share(run, known)
            return QueueView(**self._fields(queue, known.environments))

    def _fields(self, queue: QueueReplies, environments: EnvironmentsById) -> dict[str, Any]:
        return read_queue(queue, environments) | {"environment_ttl_ms": self._ttl_ms}

    def _share(self, run: str, environments: SharedEnvironments) -> None:
        if environments.are_many:
            self._environments[run] = environments
        else:
            self._environments.pop(run, None)

    def forget_unused(self) -> None:
        """Forget the environments of runs without a request since the last call."""
        self.records.forget_unused()
        self._environments = {run: known for run, known in self._environments.items() if self.records.knows(run)}

    async def demand(self, run: str) -> tuple[DemandView, dict[int, int]]:
        """Read what the credits of all environments are computed from, in one round trip.

        Returns:
            The run, and how many groups the members of each environment had started before it was read.

        Raises:
            UnreadableRecord: A record cannot be read.
        """
        keys = RunKeys(run)
        started: Command = ("HGETALL", keys.started)  # first: a group that is started in between counts twice
        commands = [started, *queue_commands(keys), *activity_commands(keys), ("HGETALL", keys.running)]
        before, *queued, seen, members, running = await self._connection.pipeline(commands)
        queue = QueueReplies._make(queued)
        records = await self.records.of(run, queue.epoch, queue.environments)
        with reading(run):
            environments = _joined(records, read_activity(seen, members))
            view = DemandView(**self._fields(queue, environments), running=read_numbers(running))
            return await with_sent(self._connection, keys, view), read_numbers(before)

    async def existing(self, run: str, *, shared: bool = True) -> QueueView:
        """Read a run that was created, or that a trainer has registered with, as `queue` does.

        Raises:
            RunNotFound: No run has this name.
        """
        view = await self.queue(run, shared=shared)
        if view.config is None:
            raise RunNotFound.named(run)
        return view

    async def summaries(self, runs: Sequence[str]) -> dict[str, RunSummary]:
        """Read the settings and the progress of runs, in one round trip; runs that do not exist are left out."""
        replies = await self._connection.pipeline([summary_command(RunKeys(run)) for run in runs])
        summaries = {}
        for run, reply in zip(runs, replies, strict=True):
            with reading(run):
                summary = read_summary(reply)
            if summary is not None:
                summaries[run] = summary
        return summaries

    async def check_exists(self, run: str) -> None:
        """Check that a run was created, or that a trainer registered with it; works even if it cannot be read.

        Raises:
            RunNotFound: No run has this name.
        """
        if not await self._connection.call("HEXISTS", RunKeys(run).run, "config"):
            raise RunNotFound.named(run)

    async def admission_context(self, run: str) -> AdmissionContext:
        """Read the admission context of a run, and the epoch that it belongs to."""
        return await read_admission_context(self._connection, self.records, run)

    async def register(self, run: str, config: RunConfig) -> bool:
        """Set the run's configuration, and return every batch a former trainer of Atropos has not acknowledged.

        Returns:
            Whether the configuration is new. A repetition changes nothing, and the step stays.
        """
        keys = RunKeys(run)
        attempts = Attempts("register a trainer", run)
        while attempts.again():
            view = await self.view(run)
            starting_step = None if view.config == config else config.starting_step
            after = after_registration(view.leases, starting_step)
            leases = [
                scripts.LeaseChange(lease.batch_id, stored_text(lease), lease_text(new))
                for lease, new in zip(view.leases, after, strict=True)
                if new != lease
            ]
            registration = scripts.register_trainer(
                keys,
                epoch=view.epoch,
                step=view.step,
                config=settings_text(config),
                starting_step=starting_step,
                leases=leases,
            )
            changed = await self._run_and_announce(run, registration)
            if changed >= 0:
                return bool(changed)

    async def was_created(self, run: str) -> bool:
        """Return whether a run was created with `put`, under ``/v1``."""
        return bool(await self._connection.call("HEXISTS", RunKeys(run).run, "made_by"))

    async def _run_and_announce(self, run: str, command: Command) -> int:
        """Run a script that adds data to a run, and then add the run's name to the set of runs.

        The name was added before, but the run may have been forgotten since. Now it holds data, so it stays. (This is
        not a plain ZADD: Redis refuses that when memory is full, and a trainer must be able to empty a full queue.)
        """
        announcement = scripts.announce_run(RunKeys(run), name=run, most_runs=_ANY_NUMBER)
        changed, _ = await self._connection.pipeline([command, announcement])
        return int(changed)

    async def put(
        self, run: str, config: RunConfig, policy: Policy, epoch: int, step: int | None = None, made_by: str = ""
    ) -> bool:
        """Write a run's configuration and policy.

        Args:
            run: The run's name.
            config: Its configuration.
            policy: Its policy.
            epoch: The epoch of the view this was decided on.
            step: The step from now on; None: unchanged.
            made_by: Id of the request that creates the run; empty to change a run.

        Returns:
            False if another request created the run, or it changed after ``epoch``: read it and decide again.
        """
        command = scripts.put_run(
            RunKeys(run),
            epoch=epoch,
            config=settings_text(config),
            policy=policy.model_dump_json(),
            step=step,
            aging=policy.max_age_s is not None,
            remembered_ms=policy.remembered_ms,
            made_by=made_by,
            name=run,
            rate_limits=limits_text(limits_of(RunLimitSettings, policy)),
        )
        return bool(await self._run_and_announce(run, command))

    async def set_policy_version(
        self, run: str, version: int, trained: Trained, decided_on: int, rewinds: int | None = None
    ) -> bool:
        """Store a new policy version, and the batches that are in no version then.

        The caller updates groups and chunks.

        Args:
            run: The run's name.
            version: The new policy version.
            trained: What the run has trained, with this version.
            decided_on: The version in force that this was decided on.
            rewinds: Number of rewinds when the trainer began; None if unknown.

        Returns:
            False if another version is in force: read the run and decide again.

        Raises:
            RunRewound: The run has another number of rewinds than ``rewinds``, if that is given; nothing has changed.
        """
        command = scripts.set_policy_version(
            RunKeys(run),
            policy_version=version,
            decided_on=decided_on,
            trained_batches=trained.batches,
            trained_in_a_row=trained.batches_per_version,
            versions_per_batch=trained.versions_per_batch,
            version_cycle=json_text(trained.cycle),
            rewinds=rewinds,
        )
        done = await self._connection.run(command)
        if done == -1:
            raise RunRewound(f"run {run} was rewound after this trainer began")
        return bool(done != -2)

    async def requested_sweep(self, run: str) -> int | None:
        """Return the number of the requested sweep of waiting groups; None if no sweep is requested."""
        found = await self._connection.call("HGET", RunKeys(run).run, "unswept")
        return None if found is None else int(found)

    async def request_sweep(self, run: str) -> None:
        """Note that waiting groups are to be checked against the policy version."""
        await self._connection.run(scripts.request_sweep(RunKeys(run)))

    async def finish_sweep(self, run: str, sweep: int) -> None:
        """Note that a sweep is done, unless another one was requested since."""
        keys = RunKeys(run)
        await self._connection.run(scripts.finish_request(keys, record=keys.run, field="unswept", seen=sweep))

    async def start(self, run: str) -> None:
        """Note that the trainer has asked for its first batch: environments may register now."""
        await self._note(run, "started", 1)

    async def note_waiting(self, run: str) -> None:
        """Note that a trainer waits for a batch: the run stays awake for half a minute."""
        await self._connection.run(scripts.note_waiting(RunKeys(run)))

    async def note_conflict(self, run: str, since_ms: int | None) -> None:
        """Remember since when minimums have been impossible together, or (None) that they are not."""
        # The time of the first observer counts: others must not start the wait again.
        await self._note(run, "conflict_since_ms", since_ms, keep=True)

    async def note_undivided(self, run: str, undivided: Undivided | None) -> None:
        """Store which batch could not be divided as ranks asked, or (None) that they got one."""
        await self._note(run, "undivided", None if undivided is None else json.dumps(asdict(undivided)))

    async def note_unfilled(self, run: str, unfilled: bool) -> None:
        """Remember whether the replay buffer could not fill the next batch up."""
        await self._note(run, "unfilled", 1 if unfilled else None)

    async def note_scarce(self, run: str, since_ms: Mapping[int, int]) -> None:
        """Store since when batches wait for environments that send too little."""
        await self._note(run, "scarce", json.dumps(since_ms) if since_ms else None)

    async def _note(self, run: str, field: str, value: str | int | None, *, keep: bool = False) -> None:
        """Set a field of the run, or (None) delete it."""
        keys = RunKeys(run)
        if value is None:
            await self._connection.call("HDEL", keys.run, field)
        else:
            command = scripts.set_run_field(keys, record=keys.run, field=field, value=value, keep=keep)
            await self._connection.run(command)

    async def record_heartbeats(self, pending: Mapping[str, PendingHeartbeats]) -> None:
        """Store signs of life, by run, in one round trip.

        Raises:
            StoreRefused: A key of one run is of another type; those of the other runs are stored.
        """
        commands = [
            scripts.record_heartbeats(
                RunKeys(run),
                environments_heard=heartbeats.environments,
                members_seen=[member_name(*member) for member in heartbeats.members],
            )
            for run, heartbeats in pending.items()
        ]
        await self._connection.pipeline(commands)

    async def tick(self, run: str, last: LastTick = NO_TICK) -> Tick:
        """Advance the run clock, and return what there is to do; a run with nothing to do falls asleep."""
        return (await self.tick_all({run: last}, None))[run]

    async def tick_all(self, runs: Mapping[str, LastTick], term: int | None) -> dict[str, Tick]:
        """Tick runs in one round trip.

        Args:
            runs: Their names, each with the last tick of this process.
            term: That of this process, if it maintains runs; None for any. In a later term, nothing happens.

        Returns:
            The ticks, by run.

        Raises:
            StoreRefused: A key of one run is of another type; the others have been ticked.
        """
        commands = [
            scripts.tick(
                RunKeys(run),
                name=run,
                term=term,
                kept_after_reset_ms=_KEPT_AFTER_RESET_MS,
                member_ttl_ms=self._ttl_ms,
                remembered_ms=Policy().remembered_ms,
                shortest_sleep_ms=_SHORTEST_SLEEP_MS,
                longest_sleep_ms=_LONGEST_SLEEP_MS,
                awaited_ms=_AWAITED_MS,
                most_events=self._most_events,
                last_tick_ms=last.clock_ms,
                work_ms=last.work_ms,
            )
            for run, last in runs.items()
        ]
        replies = await self._connection.pipeline(commands)
        return {
            run: Tick(
                reply[0],
                tuple(parse_member_name(name.decode()) for name in reply[1]),
                **{fact.decode(): True for fact in reply[2]},
            )
            for run, reply in zip(runs, replies, strict=True)
            if reply
        }

    async def forget(self, run: str) -> bool:
        """Delete an empty run together with its name. False if it holds something.

        There is no lock. So every command that makes a run hold something adds its name to the set afterwards, even if
        the name should be there (`register`, and `app.store.groups.store.GroupStore.admit`). If the deletion comes
        first, the name is put back. If it comes later, it is refused. Commands that only change existing data (ticks,
        notes, resets, environments) do nothing if there is no such run. Epochs do not repeat, so decisions about a
        deleted run are outdated in a new one of the same name.
        """
        keys = RunKeys(run)
        return bool(await self._connection.run(scripts.forget_run(keys, all_held=keys.all_held(), name=run)))

    async def reset(
        self,
        run: str,
        token: str,
        *,
        after: str | None = None,
        spare_native: bool = False,
        spare_archived: bool = False,
    ) -> ResetOutcome:
        """Delete everything about the run except its clock. Payloads are deleted in the background.

        The run remembers the token. So a repetition after a lost answer does not delete what has come since. If another
        request resets or deletes the run first, nothing that came after it is deleted.

        Args:
            run: The run's name.
            token: Unique name for the data to remove.
            after: The token of the caller's previous reset, if groups have come since.
            spare_native: Whether to leave a run alone that was created with `put`.
            spare_archived: Whether to leave an archived run alone.
        """
        keys = RunKeys(run)
        attempts, former = Attempts("reset the run", run), None
        while attempts.again():
            (epoch, *life), *parts = await self._connection.pipeline(
                [("HMGET", keys.run, "epoch", "first_epoch", "reset_by"), *part_commands(keys)]
            )
            if former not in (None, life) or (after is not None and life[1] != hash_token(after).encode()):
                return "overtaken"
            former = life
            command = reset_command(
                keys, token, epoch or b"0", parts, spare_native=spare_native, spare_archived=spare_archived
            )
            done = await self._connection.run(command)
            if done:
                return "reset" if done > 0 else "spared"


def _joined(records: Mapping[int, EnvironmentRecord], activity: Activity) -> EnvironmentsById:
    return EnvironmentsById(records, activity.heard_ms, activity.members)
