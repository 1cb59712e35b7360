"""Tell environments how many groups they may start, and how full the queue is."""

import asyncio
from dataclasses import dataclass, replace

from app.core.environments.granting import GroupAllowance
from app.core.environments.pacing import QueuePace
from app.services.environments.demand import Reading, SharedDemand
from app.services.environments.heartbeats import HeartbeatBuffer
from app.store.environments.members import Caller, MemberStore, not_a_member
from lachesis.wire.errors import EnvironmentNotFound, RunNotFound


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The answer to a heartbeat.

    Attributes:
        allowance: How many more groups its environment may start now, without ``started``.
        started: Groups that the member may start; they already count as running.
    """

    allowance: GroupAllowance
    started: int


class Allowances:
    """Records heartbeats of environments and members, and returns what they may start."""

    def __init__(self, members: MemberStore, demand: SharedDemand, heartbeats: HeartbeatBuffer) -> None:
        self._members = members
        self._demand = demand
        self._heartbeats = heartbeats

    async def heartbeat(
        self,
        run: str,
        environment: int,
        member: str,
        running_groups: int | None,
        start_groups: int = 0,
        retries: int | None = None,
        meant: str | None = None,
    ) -> HeartbeatResult:
        """Record a member's heartbeat, and return how many groups may start now.

        Args:
            run: The run's name.
            environment: The environment's id.
            member: The member's id.
            running_groups: Groups it has started and not submitted yet; None if unchanged.
            start_groups: Groups that it wants to start. Granted groups count as running at once, so that members that
                ask at the same time do not start too many.
            retries: Requests that it repeated since it joined; None if unchanged.
            meant: The environment that the id stands for, by name; None for any. Ids begin with 0 in each run, so an id
                from before the run was created again may be that of another environment.

        Raises:
            RunNotFound: There is no such run.
            EnvironmentNotFound, MemberNotFound: No environment, or no member, has this id, or it is not ``meant``.
        """
        came_s = asyncio.get_running_loop().time()
        caller = await self._caller(run, environment, member, meant)
        known = caller.member
        if known is None:
            raise not_a_member(run, environment, member)
        self._heartbeats.heard_member(run, environment, member)
        reading = await self._reading(run, environment, came_s)
        is_new = reading.began_s >= came_s
        reported = known.running_groups if running_groups is None else running_groups
        change = reported - known.running_groups
        if not is_new:  # an older reading does not count the groups that ended since, so they free no room yet
            change = max(0, change)
        running = reading.view.running.get(environment, 0) + change
        unseen = _unseen_groups(caller, reading, environment)
        grant = reading.demand.of(environment, running + unseen, is_new=is_new)
        is_same = reported == known.running_groups and retries in (None, known.retries)
        if is_same and not min(start_groups, grant.groups):
            return HeartbeatResult(grant, 0)
        started = await self._members.note_running(
            run,
            environment,
            member,
            running=reported,
            start=start_groups,
            allowed=reading.demand.of(environment, running, is_new=is_new).groups if unseen else grant.groups,
            after=reading.started.get(environment, 0),
            retries=retries,
        )
        left = reading.demand.of(environment, running + unseen + started, is_new=is_new)
        return HeartbeatResult(left, started)

    async def credits(self, run: str, environment: int) -> GroupAllowance:
        """Return how many groups an environment may start now. This does not count as a heartbeat.

        Raises:
            RunNotFound: There is no such run.
            EnvironmentNotFound: The run has no environment with this id.
        """
        came_s = asyncio.get_running_loop().time()
        caller = await self._caller(run, environment)
        reading = await self._reading(run, environment, came_s)
        running = reading.view.running.get(environment, 0) + _unseen_groups(caller, reading, environment)
        return reading.demand.of(environment, running, is_new=reading.began_s >= came_s)

    async def pace(self, run: str, environment: int) -> QueuePace:
        """Return how full the queue is, and record a heartbeat of the environment."""
        came_s = asyncio.get_running_loop().time()
        caller = await self._members.caller(run, environment)
        if caller.name is not None:
            self._heartbeats.heard(run, environment, caller.clock_ms)
        reading = await self._demand.of(run, None if caller.name is None else environment, came_s)
        return replace(reading.pacing.of(environment), current_step=caller.step)

    async def _caller(self, run: str, environment: int, member: str = "", meant: str | None = None) -> Caller:
        """Read an environment that asks, and its member.

        Raises:
            RunNotFound: There is no such run.
            EnvironmentNotFound: The run has no environment with this id, or it is not ``meant``.
        """
        caller = await self._members.caller(run, environment, member)
        check_known(run, environment, configured=caller.configured, known=caller.name is not None)
        if meant is not None and caller.name != meant:
            raise EnvironmentNotFound(f"environment {environment} of run {run} is not {meant!r}")
        return caller

    async def _reading(self, run: str, environment: int, came_s: float) -> Reading:
        reading = await self._demand.of(run, environment, came_s)
        view = reading.view  # the environment may have been forgotten since its caller was read
        check_known(run, environment, configured=view.config is not None, known=environment in view.environments)
        return reading


def check_known(run: str, environment: int, *, configured: bool, known: bool) -> None:
    """Check that a run has settings, and has an environment.

    Raises:
        RunNotFound: It has no settings.
        EnvironmentNotFound: It does not know the environment.
    """
    if not configured:
        raise RunNotFound.named(run)
    if not known:
        raise EnvironmentNotFound(f"run {run} has no environment {environment}")


def _unseen_groups(caller: Caller, reading: Reading, environment: int) -> int:
    """Return how many groups the environment has started that the reading does not show."""
    return max(0, caller.started - reading.started.get(environment, 0))
