"""Register the environments and the members of a run."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.core.access.permissions import check_environment
from app.core.environments.record import EnvironmentRecord
from app.core.environments.registration import RegistrationRequest, forgettable, joined, register
from app.core.runs.view import QueueView, RunView
from app.core.runs.warnings import RunWarning
from app.events import (
    EnvironmentExpired,
    EnvironmentJoined,
    EnvironmentLeft,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MembersExpired,
    MembersLeft,
    emit,
    note,
)
from app.services.batches.retention import Retention
from app.services.environments.allowances import check_known
from app.services.environments.change_queue import ChangeQueues, QueuedAttempts
from app.services.environments.heartbeats import HeartbeatBuffer
from app.services.environments.new_environment_limit import NewEnvironmentLimit
from app.services.runs.warnings import RunWarnings
from app.store.environments.members import MemberRecord, MemberStore, not_a_member
from app.store.environments.store import EnvironmentStore
from app.store.runs.store import RunStore
from lachesis.wire.errors import RunFull

MAX_ENVIRONMENTS = 4096
"""Maximum number of environments in a run: a status and a join look at all of them, so a faulty worker must not add
more."""

_MOST_NAMED = 20  # members of an environment that leave or expire at once, in the log and in events
_MOST_FORGOTTEN = 256  # environments at once


@dataclass(frozen=True, slots=True)
class Membership:
    """A new membership of a process.

    Attributes:
        environment: The environment's id.
        member: The member's id.
        view: The run it joined.
        new: Whether the environment is new.
        warnings: Warnings of what cannot work in the run.
    """

    environment: int
    member: str
    view: RunView
    new: bool
    warnings: tuple[RunWarning, ...]


class EnvironmentRegistry:
    """Registers environments and their members, and forgets those that nobody uses."""

    def __init__(
        self,
        runs: RunStore,
        environments: EnvironmentStore,
        members: MemberStore,
        retention: Retention,
        heartbeats: HeartbeatBuffer,
        warnings: RunWarnings,
        new_environments: NewEnvironmentLimit,
    ) -> None:
        self._runs = runs
        self._environments = environments
        self._members = members
        self._retention = retention
        self._heartbeats = heartbeats
        self._warnings = warnings
        self._new_environments = new_environments
        self._changes = ChangeQueues()

    async def register_environment(
        self, run: str, request: RegistrationRequest, sender: str | None = None, *, as_one: bool = False
    ) -> tuple[EnvironmentRecord, RunView] | None:
        """Register an environment of Atropos, or replace an old one (`app.core.environments.registration`).

        Args:
            run: The run's name.
            request: What the environment asked for.
            sender: The sender, for the limit of new environments. None for no limit.
            as_one: Whether the sender may act for environments of this name only. Then they count as one.

        Returns:
            Its record and the run it joined, or None while the trainer has not asked for its first batch.

        Raises:
            RunFull: The run has `MAX_ENVIRONMENTS` environments.
            TooManyNewEnvironments: The sender, if it is named, brings new environments too fast. Or ``as_one`` has too
                many.
        """
        async with self._changes.attempts("register an environment", run) as attempts:
            while attempts.again():
                view = await self._runs.view(run)
                if view.config is None or not view.started:
                    return None
                known, new_id = view.environments, view.next_environment
                environment = register(request, known, new_id, view.clock_ms, view.environment_ttl_ms, as_one=as_one)
                if sender is not None and environment.environment not in view.environments:
                    await self._new_environments.count(run, sender)
                    sender = None
                if await self._put(run, environment, view, attempts):
                    emit(EnvironmentJoined(run=run, environment=environment.environment, name=environment.name))
                    registered = {**view.environments, environment.environment: environment}
                    self._warnings.note(run, replace(view, environments=registered))
                    return environment, view

    def answered(self, run: str, environment: EnvironmentRecord) -> None:
        """Record that the answer to a registration was sent. From now on the environment counts as alive."""
        self._heartbeats.heard(run, environment.environment, environment.registered_ms)

    def answer_lost(self, run: str, environment: int) -> None:
        """Record that the answer to a registration did not arrive, even if it was recorded as sent."""
        self._heartbeats.forget(run, environment)

    async def disconnect_environment(self, run: str, environment: int) -> bool:
        """Record that an environment leaves, unless it has members; False if the id is unknown."""
        self._heartbeats.forget(run, environment)
        async with self._changes.attempts("disconnect an environment", run) as attempts:
            while attempts.again():
                view = await self._runs.queue(run, shared=False)
                known = view.environments.get(environment)
                if known is None:
                    return False
                if known.members or not known.connected:
                    return True
                if await self._put(run, replace(known, left_ms=view.clock_ms), view, attempts):
                    emit(EnvironmentLeft(run=run, environment=environment, name=known.name))
                    return True

    async def _put(self, run: str, environment: EnvironmentRecord, view: QueueView, attempts: QueuedAttempts) -> bool:
        """Write an environment's record if it has changed, in its turn. A write makes every plan in progress outdated.

        Raises:
            RunFull: The environment is new, and the run has `MAX_ENVIRONMENTS` already.

        Returns:
            False if the run changed since ``view``: read it and decide again.
        """
        known = view.environments.get(environment.environment)
        if known == environment:
            return True
        if await attempts.waited():
            return False
        if known is None and len(view.environments) >= MAX_ENVIRONMENTS:
            now = await self._runs.view(run)
            if len(now.environments) >= MAX_ENVIRONMENTS and await self._forget(run, now, at_once=True) == []:
                raise RunFull(f"the run has {MAX_ENVIRONMENTS} environments that are alive or have groups")
            return False
        return await self._environments.put(run, environment, view.epoch)

    async def note_expired(self, run: str, members: Sequence[tuple[int, str]]) -> None:
        """Log the members that were silent for too long, each with its environment's id."""
        view, silent = await self._runs.queue(run), defaultdict[int, list[str]](list)
        for key, member in members:
            silent[key].append(member)
        for key, own in silent.items():
            name = view.environments[key].name if key in view.environments else str(key)
            if len(own) > _MOST_NAMED:
                emit(MembersExpired(run=run, environment=key, name=name, members=len(own)))
            else:
                for member in own:
                    emit(MemberExpired(run=run, environment=key, name=name, member=member))

    async def forget_idle(self, run: str) -> list[EnvironmentRecord]:
        """Forget environments without members, groups and history; return them."""
        return await self._forget(run, await self._runs.view(run), at_once=False) or []

    async def _forget(self, run: str, view: RunView, *, at_once: bool) -> list[EnvironmentRecord] | None:
        """Forget unused environments; None if the run changed after ``view``: read it again."""
        if not forgettable(view, at_once=at_once):
            return []
        kept: Collection[int] = await self._retention.environments(run) if view.kept.batches else ()
        idle = forgettable(view, kept=kept, at_once=at_once)[:_MOST_FORGOTTEN]
        if not idle:
            return []
        if not await self._environments.forget(run, idle, view):
            return None
        for env in idle:
            emit(EnvironmentExpired(run=run, environment=env.environment, name=env.name))
        return idle

    # Environments of the native API, identified by their names

    async def join(
        self,
        run: str,
        name: str,
        settings: Mapping[str, Any],
        member: str | None,
        *,
        change_settings: bool,
        sender: str | None = None,
    ) -> Membership:
        """Let a process join an environment as a member. The first member makes the environment.

        Args:
            run: The run's name.
            name: The environment's name.
            settings: The settings to set; the others stay as they are.
            member: The id to join under; a process that joins again under its id is the same member. None for a new id.
            change_settings: Whether the settings may change for all members.
            sender: The sender, for the limit of new environments. None for no limit.

        Raises:
            RunNotFound: There is no such run.
            TooManyNewEnvironments: The sender brings new environments too fast.
            EnvironmentSettingsDiffer: Other members are alive, and have other settings.
            InvalidField: A client of Atropos registered an environment of this name.
            RunFull: The run has the largest number of environments or members.
        """
        if sender is not None and not self._runs.records.has_name(run, name):
            self._new_environments.check(run, sender)  # before the run is read: a refusal costs little
        member = uuid.uuid4().hex[:16] if member is None else member
        async with self._changes.attempts("join an environment", run) as attempts:
            while attempts.again():
                view = await self._runs.existing(run, shared=False)
                environment = joined(name, settings, view, change_settings=change_settings)
                key, known = environment.environment, view.environments.get(environment.environment)
                if known is None and sender is not None:
                    await self._new_environments.count(run, sender)
                    sender = None
                if not await self._put(run, environment, view, attempts):
                    continue
                if known is not None:
                    _note_changes(run, known, settings)
                new_member = await self._members.put(run, key, member)
                if new_member is None:
                    continue  # the environment was forgotten in the meantime
                now = await self._runs.view(run)
                if key not in now.environments or now.environments[key].name != name:
                    continue  # the run was deleted in the meantime, and maybe made again
                if known is None or not view.is_alive(known):
                    emit(EnvironmentJoined(run=run, environment=key, name=name))
                if new_member:
                    emit(MemberJoined(run=run, environment=key, name=name, member=member))
                return Membership(key, member, now, known is None, self._warnings.note(run, now))

    async def leave(self, run: str, environment: int, member: str | None) -> None:
        """Let a member leave, or all of them (None). When the last one leaves, the environment leaves.

        Raises:
            RunNotFound: There is no such run.
            EnvironmentNotFound, MemberNotFound: No environment, or no member, has this id.
        """
        record = (await self._without_counts(run, environment)).environments[environment]
        if member is None:
            removed, left = await self._remove_all(run, environment)
        else:
            removed, left = await self._members.remove(run, environment, [member])
        if len(removed) > _MOST_NAMED:
            emit(MembersLeft(run=run, environment=environment, name=record.name, members=len(removed)))
        else:
            for one in removed:
                emit(MemberLeft(run=run, environment=environment, name=record.name, member=one))
        if left == 0 and (member is None or not record.of_atropos):
            await self.disconnect_environment(run, environment)  # also if an earlier request did half of this
        if member is not None and not removed:
            raise not_a_member(run, environment, member)

    async def _remove_all(self, run: str, environment: int) -> tuple[list[str], int]:
        """Remove the members in steps, between which other requests are served."""
        removed, left = await self._members.remove(run, environment, [])
        async for members in self._members.pages(run, environment):
            some, left = await self._members.remove(run, environment, members)
            removed += some
        return removed, left

    async def members(self, run: str, environment: int) -> tuple[list[MemberRecord], int]:
        """Return an environment's members by id, and the run clock in milliseconds.

        Raises:
            RunNotFound: There is no such run.
            EnvironmentNotFound: The run has no environment with this id.
        """
        view = await self._without_counts(run, environment)
        return await self._members.of_environment(run, environment), view.clock_ms

    async def change_environment(self, run: str, environment: int, changes: Mapping[str, Any]) -> RunView:
        """Change an environment's shares, weight or group size; return the run.

        Raises:
            RunNotFound: There is no such run, or it was deleted in the meantime.
            EnvironmentNotFound: The run has no environment with this id.
        """
        async with self._changes.attempts("change an environment", run) as attempts:
            while attempts.again():
                view = await self.known(run, environment)
                known = view.environments[environment]
                if await self._put(run, replace(known, **changes), view, attempts):
                    _note_changes(run, known, changes)
                    return await self.known(run, environment)

    async def check_name(self, run: str, environment: int, only: str | None) -> None:
        """Check that a sender may act for an environment. An unknown id passes: there is nothing to act for.

        Args:
            run: The run's name.
            environment: The environment's id.
            only: The only environment that the sender may act for, by name; None for any.

        Raises:
            PermissionDenied: The id is that of another environment.
        """
        if only is not None:
            name = await self._environments.desired_name(run, environment)
            check_environment(only, name or only, is_sent=False)

    async def _without_counts(self, run: str, environment: int) -> QueueView:
        """Return the run as `known` does, without counts of environments: these cost more than all other fields."""
        view = await self._runs.queue(run, shared=False)
        check_known(run, environment, configured=view.config is not None, known=environment in view.environments)
        return view

    async def known(self, run: str, environment: int) -> RunView:
        """Return the run, after a check that it has this environment.

        Raises:
            RunNotFound: There is no such run.
            EnvironmentNotFound: The run has no environment with this id.
        """
        view = await self._runs.view(run)
        check_known(run, environment, configured=view.config is not None, known=environment in view.environments)
        return view


def _note_changes(run: str, known: EnvironmentRecord, settings: Mapping[str, Any]) -> None:
    changes = {name: value for name, value in settings.items() if value != getattr(known, name)}
    if changes:
        named = {"run": run, "environment": known.environment, "name": known.name}
        note("environment changed", named | {"changes": changes})
