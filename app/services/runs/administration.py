"""Create, read, change and delete runs, and record new policy versions."""

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.access.rate_limits import limits_of
from app.core.environments.horizon import after_version
from app.core.runs.settings import Policy, RunConfig
from app.core.runs.view import QueueView, RunView
from app.events import PolicyVersionSet, RunChanged, RunCreated, RunDeleted, emit
from app.services.access.rate_limits import RequestLimiter
from app.services.batches.retention import Retention, RewindResult
from app.services.groups.staleness import Staleness
from app.services.isolation import Failure, for_each_run
from app.services.replay.cleanup import ReplayCleanup
from app.store.groups.garbage import GarbageStore
from app.store.redis.compare_and_swap import Attempts
from app.store.replay.store import ReplayStore
from app.store.runs.damage import DamageStore
from app.store.runs.store import RunStore
from app.store.runs.view import RunSummary
from lachesis.wire.errors import InvalidField, RunExists, RunInUse, RunNotFound
from lachesis.wire.limits import RunLimitSettings

_ATTEMPTS = 10
_ANY_CLOCK_MS = 2**53  # no run clock is later
_MOST_SHOWN = 80  # characters of a value


@dataclass(frozen=True, slots=True)
class RunPage:
    """Some of the runs.

    Attributes:
        runs: The runs, by name.
        unreadable: The errors of runs that cannot be read.
        unconfigured: The names of runs without settings: only groups came, or the run was reset.
        next_after: The name after which the next page begins; None on the last one.
    """

    runs: Mapping[str, RunSummary]
    unreadable: Mapping[str, Failure]
    unconfigured: list[str]
    next_after: str | None


class RunAdministration:
    """The runs, for their owners."""

    def __init__(
        self,
        runs: RunStore,
        damage: DamageStore,
        garbage: GarbageStore,
        retention: Retention,
        staleness: Staleness,
        replay: ReplayCleanup,
        buffers: ReplayStore,
        limits: RequestLimiter,
    ) -> None:
        self._runs = runs
        self._damage = damage
        self._garbage = garbage
        self._retention = retention
        self._staleness = staleness
        self._replay = replay
        self._buffers = buffers
        self._limits = limits

    async def create(
        self, run: str, config: RunConfig, policy: Policy, named: Collection[str] | None = None
    ) -> tuple[RunView, bool]:
        """Make a run. Groups that came under its name before stay in its queue.

        Args:
            run: The run's name.
            config: Its configuration.
            policy: Its policy.
            named: The fields of both that the request sets. All others are defaults, and an existing run may differ in
                them. None for all fields.

        Returns:
            The run, and whether it is new. The same settings again change nothing.

        Raises:
            RunExists: A run of this name exists with other settings than those requested.
            TooManyRuns: The service has the largest number of runs.
        """
        await self._runs.announce(run)
        request = uuid.uuid4().hex
        attempts = Attempts("create the run", run)
        while attempts.again():
            view = await self._runs.view(run)
            if view.config is not None:
                if others := _differing(view, config, policy, named):
                    raise RunExists(f"there is a run {run} with other settings: {', '.join(others)}")
                return view, False
            if await self._runs.put(run, config, policy, view.epoch, config.starting_step, request):
                await self._limits.apply(run, limits_of(RunLimitSettings, policy))
                emit(RunCreated(run=run, batch_size=config.batch_size, changes=_named(config, policy, named)))
                return await self._runs.view(run), True

    async def get(self, run: str) -> QueueView:
        """Return a run.

        Raises:
            RunNotFound: There is no run of this name, or no trainer has registered with it.
        """
        return await self._runs.existing(run)

    async def with_counts(self, run: str) -> RunView:
        """Return a run with the counts of its environments. The cost grows with their number.

        Raises:
            RunNotFound: There is no run of this name, or no trainer has registered with it.
        """
        view = await self._runs.view(run)
        if view.config is None:
            raise RunNotFound.named(run)
        return view

    async def check(self, run: str) -> None:
        """Check that there is a run of this name.

        Raises:
            RunNotFound: The run does not exist, or no trainer has registered with it.
        """
        await self._runs.check_exists(run)

    async def page(self, limit: int, after: str, own: Callable[[Iterable[str]], Sequence[str]] = list) -> RunPage:
        """Return runs by name.

        Args:
            limit: The number of names to look at, ``>= 1``.
            after: Return runs with later names.
            own: Returns those of the runs that may be shown.
        """
        names = own(name for name in await self._runs.names() if name > after)
        runs, unreadable = await for_each_run(self._runs.summaries, names[:limit])
        unconfigured = [run for run in names[:limit] if run not in runs and run not in unreadable]
        return RunPage(runs, unreadable, unconfigured, names[limit - 1] if len(names) > limit else None)

    async def change(self, run: str, changes: Mapping[str, Any]) -> QueueView:
        """Change a run while it runs.

        After a new batch size, unacknowledged batches of another size are dissolved when they would be handed out
        again. Groups that new limits make too old are dropped. Kept batches beyond new limits are released.

        Args:
            run: The run's name.
            changes: New JSON values by field of `RunSettings`, or ``batch_size``.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: A fresh fraction needs a replay buffer that takes groups.
        """
        others = dict(changes)
        batch_size = others.pop("batch_size", None)
        attempts = Attempts("change the run", run)
        while attempts.again():
            view = await self.get(run)
            await self._check_fresh_fraction(run, others.get("fresh_fraction", 1.0))
            assert view.config is not None, "as get() says"  # noqa: S101
            config = view.config if batch_size is None else view.config.model_copy(update={"batch_size": batch_size})
            policy = Policy.model_validate(view.policy.model_dump() | others)
            if await self._runs.put(run, config, policy, view.epoch):
                await self._limits.apply(run, limits_of(RunLimitSettings, policy))
                emit(RunChanged(run=run, changes=changes))
                break
        await self._retention.trim(run)
        await self._staleness.sweep_versions(run)
        await self._staleness.sweep_ages(run)
        return await self.get(run)

    async def _check_fresh_fraction(self, run: str, fraction: float) -> None:
        if fraction < 1 and not await self._buffers.takes_groups(run):
            why = "to fill batches up, the run needs a replay buffer with `groups`: PUT …/replay first"
            raise InvalidField(f"is {fraction}; {why}", ("fresh_fraction",))

    async def set_policy_version(self, run: str, version: int, rewinds: int | None = None) -> int:
        """Set the current policy version. Drop the groups that are too old or too new for it, and return how many.

        Chunks of the replay buffer are retired for the same reason.

        Args:
            run: The run's name.
            version: The policy version.
            rewinds: Number of rewinds of the run when this trainer began; None if unknown.

        Raises:
            RunNotFound: There is no such run.
            RunRewound: The run was rewound after the trainer began. Nothing has changed.
        """
        attempts, first = Attempts("set the policy version", run), None
        while attempts.again():
            view = await self.get(run)
            before, held = view.policy_version, sum(lease.state == "held" for lease in view.leases)
            first = before if first is None else first
            if first < version <= before:  # a later version came in between: this one counts as set before it
                return 0
            trained = after_version(view.trained, before, version, held)
            if await self._runs.set_policy_version(run, version, trained, before, rewinds):
                dropped = await self._sweep_versions(run)
                emit(PolicyVersionSet(run=run, policy_version=version, before=before, dropped_groups=dropped))
                return dropped

    async def rewind(self, run: str, step: int, request_id: str | None = None) -> RewindResult:
        """Go back to the state that a trainer saved after ``step`` (`app.services.batches.retention.Retention.rewind`).

        Raises:
            RunNotFound: There is no such run.
            InvalidField, RewindImpossible: As for `Retention.rewind`.
        """
        await self.get(run)
        rewound = await self._retention.rewind(run, step, request_id)
        await self._sweep_versions(run)
        return rewound

    async def _sweep_versions(self, run: str) -> int:
        await self._replay.sweep(run)
        return await self._staleness.sweep_versions(run)

    async def delete(self, run: str) -> None:
        """Delete a run with all its keys, even if they are damaged, or it has no settings.

        Raises:
            RunNotFound: There is no such run.
            RunInUse: Groups keep coming, which make the run again each time.
        """
        await self._runs.announce(run, new=False)
        is_damaged = await self._damage.drop(run)
        token = None
        for _ in range(_ATTEMPTS):
            former, token = token, uuid.uuid4().hex
            if await self._runs.reset(run, token, after=former) == "overtaken":
                return
            await self._garbage.mark_abandoned(run, _ANY_CLOCK_MS)
            await self._garbage.delete_marked(run)
            if is_damaged and not await self._delete_strays(run):
                continue
            if await self._runs.forget(run):
                await self._limits.apply(run, None)
                emit(RunDeleted(run=run))
                return
        raise RunInUse(f"groups keep coming for run {run}: stop its environments, then delete it")

    async def _delete_strays(self, run: str) -> bool:
        """Delete keys that nothing names, because those that named them were damaged. False if the run is in use."""
        async for strays in self._damage.strays(run):
            if not await self._damage.delete_strays(run, strays):
                return False
            await self._garbage.delete_marked(run)
        return True


def _named(config: RunConfig, policy: Policy, named: Collection[str] | None) -> dict[str, Any]:
    """Return the settings that a request named. None means that it named all."""
    values = config.model_dump(mode="json") | policy.model_dump(mode="json")
    return {name: value for name, value in values.items() if named is None or name in named}


def _differing(view: RunView, config: RunConfig, policy: Policy, named: Collection[str] | None) -> list[str]:
    """Return the settings of a run that differ from those requested, each with the run's value."""
    assert view.config is not None, "only a configured run has settings"  # noqa: S101
    there, asked = view.config.model_dump() | view.policy.model_dump(), config.model_dump() | policy.model_dump()
    others = [name for name, value in there.items() if value != asked[name] and (named is None or name in named)]
    return [f"{name} is {json.dumps(there[name])[:_MOST_SHOWN]}" for name in others]
