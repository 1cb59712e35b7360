"""Read and change runs: their configuration, policy, environments, clock, and end."""

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain, islice

from app.core.batches.leases import LeaseState, returned
from app.core.environments.record import EnvironmentRecord
from app.core.errors import InvalidField, RunNotFound, RunRewound
from app.core.ranks.sharding import Undivided
from app.core.runs.counters import Trained
from app.core.runs.settings import Policy
from app.core.runs.view import RunConfig, RunView
from app.store.environments import scripts as environment_scripts
from app.store.groups import scripts as group_scripts
from app.store.groups.admission_context import AdmissionContext, read_admission_context
from app.store.redis.client import RedisClient
from app.store.redis.compare_and_swap import Attempts
from app.store.redis.keys import RUNS, RunKeys, is_run_name, member_name, parse_member_name
from app.store.redis.pipeline import Command
from app.store.runs import scripts
from app.store.runs.tick import HeardOf, Tick
from app.store.runs.view import (
    RunSummary,
    lease_text,
    read_summary,
    read_view,
    reading,
    sent_text,
    summary_command,
    view_commands,
)

MOST_RUNS = 1000
_ANY_NUMBER = 2**53
_RECOGNISED_FOR_MS = 120_000  # a repeated submission is recognised this long; far longer than any retry lasts
MOST_FORGOTTEN = 1000
"""Given ids, and histories, forgotten at once."""


class RunStore:
    """Reads and changes what a run is, not what is in its queue."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def names(self) -> list[str]:
        """Return the names of all runs that have any state, sorted.

        Invalid names in the set are left out. They must not stop the maintenance of the other runs.
        """
        members = await self._connection.call("SMEMBERS", RUNS)
        return sorted(filter(is_run_name, (member.decode(errors="replace") for member in members)))

    async def announce(self, run: str) -> None:
        """Note that ``run`` exists, so that every API process looks after it.

        Raises:
            InvalidField: It is not the name of a run, or there are as many runs as we look after.
        """
        name = RunKeys(run).name  # checks the name: an invalid one would stop the maintenance of all runs
        if not await self._connection.run(scripts.announce_run(RunKeys(name), name=name, most_runs=MOST_RUNS)):
            raise InvalidField(f"there are {MOST_RUNS} runs, and no more are taken")

    async def view(self, run: str) -> RunView:
        """Read the run without its queue, in one round trip."""
        return (await self.views([run]))[run]

    async def views(self, runs: Sequence[str]) -> dict[str, RunView]:
        """Read runs without their queues, in one round trip; one that is not there looks empty.

        Raises:
            StoreRefused: A key of one of them is of another type.
            UnreadableRecord: A record of one of them cannot be read.
        """
        commands = [view_commands(RunKeys(run)) for run in runs]
        replies = iter(await self._connection.pipeline(list(chain.from_iterable(commands))))
        views = {}
        for run, own in zip(runs, commands, strict=True):
            with reading(run):
                views[run] = read_view(list(islice(replies, len(own))))
        return views

    async def existing(self, run: str) -> RunView:
        """Read a run that somebody has made, or a trainer has registered with.

        Raises:
            RunNotFound: There is none of this name.
        """
        view = await self.view(run)
        if view.config is None:
            raise RunNotFound(f"there is no run {run}")
        return view

    async def summaries(self, runs: Sequence[str]) -> dict[str, RunSummary]:
        """Read what runs are set to and how far they are, in one round trip; those nobody has made are left out."""
        replies = await self._connection.pipeline([summary_command(RunKeys(run)) for run in runs]) if runs else []
        summaries = {}
        for run, reply in zip(runs, replies, strict=True):
            with reading(run):
                summary = read_summary(reply)
            if summary is not None:
                summaries[run] = summary
        return summaries

    async def is_made(self, run: str) -> bool:
        """Whether a run was created, or a trainer registered with it; works even if it cannot be read."""
        return bool(await self._connection.call("HEXISTS", RunKeys(run).run, "config"))

    async def admission_context(self, run: str) -> AdmissionContext:
        """Read the admission context of a run, and the epoch that it belongs to."""
        return await read_admission_context(self._connection, run)

    async def register(self, run: str, config: RunConfig) -> bool:
        """Set the run's configuration, and return every batch a former trainer of Atropos has not acknowledged.

        Returns:
            Whether the configuration is new. The same one again changes nothing: the step goes on.
        """
        keys = RunKeys(run)
        attempts = Attempts("register a trainer", run)
        while attempts.again():
            view = await self.view(run)
            leases = [
                scripts.LeaseChange(lease.batch_id, lease_text(lease), lease_text(returned(lease)))
                for lease in view.leases
                if lease.state in (LeaseState.SENDING, LeaseState.SENT)
            ]
            registration = scripts.register_trainer(
                keys,
                epoch=view.epoch,
                config=_config_text(config),
                starting_step=config.starting_step,
                leases=leases,
            )
            changed = await self._run_and_announce(run, registration)
            if changed >= 0:
                return bool(changed)

    async def _run_and_announce(self, run: str, command: Command) -> int:
        """Run a script that makes a run hold something, and see to it that its name is known.

        It was announced already, but it may have been forgotten since. From here on it holds something. (No SADD, as
        Redis refuses that when memory is full, and then a trainer must be able to empty the queue.)
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
            step: The step from now on, or None to go on.
            made_by: Id of the request that creates the run; empty to change a run.

        Returns:
            False if another request created the run, or it changed after ``epoch``: read it and decide again.
        """
        command = scripts.put_run(
            RunKeys(run),
            epoch=epoch,
            config=_config_text(config),
            policy=policy.model_dump_json(),
            step=step,
            aging=policy.max_age_s is not None,
            made_by=made_by,
        )
        return bool(await self._run_and_announce(run, command))

    async def set_policy_version(self, run: str, version: int, trained: Trained, rewinds: int | None = None) -> None:
        """Store a new policy version, and the batches that are in no version then.

        The caller updates groups and chunks.

        Raises:
            RunRewound: The run has another number of rewinds than ``rewinds``, if that is given; nothing has changed.
        """
        command = scripts.set_policy_version(
            RunKeys(run),
            policy_version=version,
            trained_batches=trained.batches,
            trained_per_version=trained.per_version,
            rewinds=rewinds,
        )
        if await self._connection.run(command) < 0:
            raise RunRewound(f"run {run} was rewound after this trainer began")

    async def start(self, run: str) -> None:
        """Note that the trainer has asked for its first batch: environments may register now."""
        await self._set_field(RunKeys(run), "started", 1)

    async def put_environment(self, run: str, environment: EnvironmentRecord, epoch: int) -> bool:
        """Write an environment's record. Without a `heard_ms`, the last sign of life under its id is forgotten.

        Returns:
            False if any environment or the configuration changed since ``epoch``: read the run and decide again.
        """
        keys = RunKeys(run)
        # The token makes the record unlike any other: sent again after a lost reply, it is recognised.
        record = asdict(environment) | {"token": uuid.uuid4().hex}
        del record["heard_ms"], record["members"]
        written = await self._connection.run(
            environment_scripts.put_environment(
                keys,
                epoch=epoch,
                environment=environment.environment,
                record=json.dumps(record),
                forget_seen=environment.heard_ms is None,
            )
        )
        return bool(written)

    async def note_conflict(self, run: str, since_ms: int | None) -> None:
        """Remember since when minimums have been impossible together, or (None) that they are not."""
        keys = RunKeys(run)
        if since_ms is None:
            await self._connection.call("HDEL", keys.run, "conflict_since_ms")
        else:
            # The time of the first observer counts: others must not start the wait again.
            await self._set_field(keys, "conflict_since_ms", since_ms, keep=True)

    async def note_undivided(self, run: str, undivided: Undivided | None) -> None:
        """Store which batch could not be divided as ranks asked, or (None) that they got one."""
        keys = RunKeys(run)
        if undivided is None:
            await self._connection.call("HDEL", keys.run, "undivided")
        else:
            await self._set_field(keys, "undivided", json.dumps(asdict(undivided)))

    async def note_unfilled(self, run: str, unfilled: bool) -> None:
        """Remember whether the replay buffer could not fill the next batch up."""
        keys = RunKeys(run)
        if unfilled:
            await self._set_field(keys, "unfilled", 1)
        else:
            await self._connection.call("HDEL", keys.run, "unfilled")

    async def note_scarce(self, run: str, since_ms: Mapping[int, int]) -> None:
        """Store since when batches wait for environments that send too little."""
        keys = RunKeys(run)
        if since_ms:
            await self._set_field(keys, "scarce", json.dumps(since_ms))
        else:
            await self._connection.call("HDEL", keys.run, "scarce")

    async def _set_field(self, keys: RunKeys, field: str, value: str | int, *, keep: bool = False) -> None:
        await self._connection.run(scripts.set_run_field(keys, record=keys.run, field=field, value=value, keep=keep))

    async def forget_environments(self, run: str, environments: Sequence[EnvironmentRecord], view: RunView) -> bool:
        """Forget environments without members and groups. Their counts move to no environment.

        Returns:
            False if the run changed after ``view``, or one of them came back: read it and decide again.
        """
        keys = RunKeys(run)
        reasons: defaultdict[int | None, list[str]] = defaultdict(list)
        for reason, environment in view.dropped:
            reasons[environment].append(reason)
        forgotten = []
        for key in (environment.environment for environment in environments):
            sent = sent_text(view.sent[key]) if key in view.sent else ""
            forgotten.append(environment_scripts.ForgottenEnvironment(id=str(key), sent=sent, reasons=reasons[key]))
        command = environment_scripts.forget_environments(keys, epoch=view.epoch, forgotten=forgotten)
        return bool(await self._connection.run(command))

    async def tick(self, run: str, worker: str, heard_of: HeardOf, member_ttl_ms: int) -> Tick:
        """Advance the run clock and store signs of life."""
        return (await self.tick_all(worker, {run: heard_of}, member_ttl_ms))[run]

    async def tick_all(self, worker: str, heard_of: Mapping[str, HeardOf], member_ttl_ms: int) -> dict[str, Tick]:
        """Tick runs in one round trip.

        Args:
            worker: This API process.
            heard_of: The runs, and the signs of life in each.
            member_ttl_ms: Silence after which a member expires, milliseconds of run clock.

        Raises:
            StoreRefused: A key of one run is of another type; the others have been ticked.
        """
        commands = []
        for run, heard in heard_of.items():
            commands.append(
                scripts.tick(
                    RunKeys(run),
                    worker=worker,
                    recognised_ms=_RECOGNISED_FOR_MS,
                    member_ttl_ms=member_ttl_ms,
                    environments_heard=heard.environments,
                    members_seen=[member_name(*member) for member in heard.members],
                )
            )
        replies = await self._connection.pipeline(commands) if commands else []
        return {
            run: Tick(clock, tuple(parse_member_name(name.decode()) for name in expired), *map(bool, facts))
            for run, (clock, expired, *facts) in zip(heard_of, replies, strict=True)
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

    async def forget_old(self, run: str) -> int:
        """Forget given ids and histories whose time has come; returns how many."""
        command = group_scripts.expire_history(RunKeys(run), most=MOST_FORGOTTEN, look_again_ms=_RECOGNISED_FOR_MS)
        return int(await self._connection.run(command))

    async def forget_recent(self, run: str) -> None:
        """Forget which groups were admitted lately, so that a run that was reset can be forgotten at once."""
        await self._connection.call("UNLINK", RunKeys(run).recent)

    async def reset(self, run: str, token: str, *, spare_native: bool = False) -> bool:
        """Forget everything about the run but its clock. Payloads are removed in the background.

        Args:
            run: The run's name.
            token: Unique name for the data to remove.
            spare_native: Whether to leave a run alone that was created with `put`.

        Returns:
            False if the run was left alone.
        """
        keys = RunKeys(run)
        attempts = Attempts("reset the run", run)
        while attempts.again():
            # Raw names: a run that cannot be read can be removed, too.
            found = await self._connection.pipeline([("HKEYS", keys.lanes), ("HKEYS", keys.buffers)])
            lanes, buffers = ([name.decode() for name in names] for names in found)
            queues = {f"lane {name}": keys.lane(name) for name in lanes}
            queues |= {f"buffer {name}": keys.buffer(name) for name in buffers}
            curricula = await self._curricula(keys)
            tokens = {f"{token}-{n}": naming for n, naming in enumerate(keys.naming_payloads())}
            of_curricula = [key for own in curricula for key in keys.curriculum_keys(own)[1:]]
            done = await self._connection.run(
                scripts.reset_run(
                    keys,
                    payload_hashes=[scripts.RenamedHash(key, keys.marked_hash(own)) for own, key in tokens.items()],
                    deleted=[*keys.state(), *queues.values(), *of_curricula],
                    spare_native=spare_native,
                    tokens=list(tokens),
                    names=[*queues, *(f"curriculum {own}" for own in curricula)],
                )
            )
            if done:
                return bool(done > 0)

    async def _curricula(self, keys: RunKeys) -> list[str]:
        """Read the ids of the run's curricula, those that are being loaded among them."""
        named, loading = await self._connection.pipeline(
            [("HVALS", keys.curricula), ("ZRANGE", keys.curricula_loading, 0, -1)]
        )
        return [own.decode() for own in (*named, *loading)]


def _config_text(config: RunConfig) -> str:
    return json.dumps(asdict(config), sort_keys=True)
