"""An environment, for asyncio: join a run, submit groups, wait for permits."""

import asyncio
import contextlib
import logging
import math
import os
import re
import socket
import uuid
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from typing_extensions import Self

from lachesis._compat import timeout
from lachesis._public import ForAsyncio
from lachesis._transport.bodies import checked
from lachesis._transport.http import Note, OwnsSender, Sender
from lachesis._transport.protocol import Call
from lachesis._transport.run_calls import RunCalls
from lachesis._transport.settings import Settings, settings_from
from lachesis._transport.tracing import create_untraced_task, trace_headers
from lachesis.curriculum.curriculum import AsyncCurriculum, NamedCurricula, raise_failures
from lachesis.environments.outbox import Outbox, Parcel
from lachesis.environments.permits import AsyncPermit, Permits
from lachesis.errors import (
    EnvironmentNotFound,
    EnvironmentSettingsDiffer,
    LachesisError,
    MemberNotFound,
    NotSent,
    RunNotFound,
    ServiceError,
    Unreachable,
)
from lachesis.groups.group import Group
from lachesis.wire.environments import Credits, EnvironmentCreate
from lachesis.wire.groups import MAX_GROUPS, GroupOutcome, Receipts
from lachesis.wire.status import Warned

_LEAVING_S = 5.0
_SHORTEST_WAIT_S = 1.0  # for other reports
_REPORT_DELAY_S = 0.3  # groups that arrive within this time are reported together

log = logging.getLogger(__name__)


class _Retry(NamedTuple):
    """How long a request is repeated, and who learns of its failures: the last arguments of `Sender.send`."""

    budget_s: float | None = None
    note: Note | None = None


class AsyncEnvironment(OwnsSender, ForAsyncio):
    """An environment, which submits groups. It joins the run on entry, sends heartbeats, and leaves on exit.

    Many processes may use one name. Each process is a member of the environment, and all members share its credits.

    ```
    async with AsyncEnvironment("gsm8k", group_size=8) as environment:
        async with environment.permit() as permit:
            await environment.submit(await rollout(permit.policy_version))
    ```

    Groups wait in an outbox until the service has stored them. So rollouts go on during a restart of the service, until
    the outbox is full. The outbox keeps each group until the service has answered for it.

    Use it in one event loop, with ``async with``.
    """

    settings: Settings
    """The URL of the service, the name of the run, and the timeouts."""

    outcomes: Counter[GroupOutcome]
    """Number of groups by outcome: accepted, stale, refused, too long, or dropped by a filter."""

    def __init__(
        self,
        name: str,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
        token: str | None = None,
        member: str | None = None,
        wait_for_run_s: float = 0.0,
        group_size: int | None = None,
        weight: float | None = None,
        min_share: float | None = None,
        max_share: float | None = None,
        change_settings: bool = False,
        buffer_groups: int = 256,
        buffer_bytes: int = 64 * 1024 * 1024,
        heartbeat_s: float = 10.0,
        drain_s: float = 30.0,
    ) -> None:
        """Check the settings. Does not connect: ``AsyncEnvironment("gsm8k", "http://lachesis:8000", run="math")``.

        Args:
            name: Name of the environment in the run. All processes that join under this name are its members.
            settings: The service's URL, or all `Settings`. None means the environment variables.
            url, run, token: The URL, the run and the token. They take precedence over ``settings``.
            member: Id of this process among the members. None means the host name, the process id and a random part.
            wait_for_run_s: Maximum time to wait until the service answers and a trainer has created the run, seconds.
                0 means that the run must exist.
            group_size: Usual number of sequences in its groups. None means the environment's setting, 1 at first.
            weight: Its part of the sequences beyond the minimums, relative to other environments. None means the
                environment's setting, 1 at first.
            min_share: Minimum share in each batch, 0 to 1. None means the environment's setting, no minimum at first.
            max_share: Maximum share in each batch, 0 to 1. None means the environment's setting, no maximum at first.
            change_settings: Whether these four settings may differ from those of live members, and then replace them.
            buffer_groups: Maximum number of groups in the outbox, ``>= 1``. More than 10,000 counts as 10,000. `submit`
                waits for room.
            buffer_bytes: Maximum number of bytes in the outbox.
            heartbeat_s: Seconds between heartbeats, ``> 0``, well below ``LACHESIS_ENVIRONMENT_TTL_S`` of the service.
            drain_s: Maximum time to send the outbox on exit, seconds, ``>= 0``.

        Raises:
            InvalidField: The name, group size, weight or shares are wrong.
            ValueError, TypeError: Another argument or a variable is wrong; the message names it.
        """
        if "://" in str(name):
            raise ValueError(f"name: should be that of the environment, not {name!r}; a URL comes second, or as url=")
        if not heartbeat_s > 0:
            raise ValueError(f"heartbeat_s: should be above 0, not {heartbeat_s}")
        if not drain_s >= 0:
            raise ValueError(f"drain_s: should be 0 or more, not {drain_s}")
        self.settings = settings_from(settings, url, run, token)
        given = {"group_size": group_size, "weight": weight, "min_share": min_share, "max_share": max_share}
        self._joining = checked(
            EnvironmentCreate,
            name=name,
            member=_own_member_id() if member is None else member,
            **({"change_settings": True} if change_settings else {}),
            **{setting: value for setting, value in given.items() if value is not None},
        )
        self._wait_for_run_s = wait_for_run_s
        self._warned: set[str] = set()
        self._heartbeat_s = heartbeat_s
        self._drain_s = drain_s
        self._calls = RunCalls(self.settings.run)
        self._sender = Sender(self.settings)
        self._curricula = NamedCurricula(self.settings, self._sender)
        self._outbox = Outbox(min(buffer_groups, MAX_GROUPS), buffer_bytes)
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self._id: int | None = None
        self._reporting = asyncio.Lock()
        self._before_joining = 0  # retries until then
        self._reported = 0  # running groups, as the service counts them
        self._permits = Permits(name, lambda note: self._report(1, _Retry(math.inf, note)), self._tell)
        self._trouble: LachesisError | None = None
        self.outcomes = Counter()

    @property
    def id(self) -> int:
        """Id of the environment in the run. Raises `RuntimeError` before it has joined, and after it has left."""
        if self._id is None:
            raise RuntimeError("the environment has not joined, or has left: use it in the block of its `with`")
        return self._id

    @property
    def member(self) -> str:
        """Id of this process among the members of the environment."""
        return str(self._joining.member)

    @property
    def running_groups(self) -> int:
        """Number of held permits and of groups in the outbox."""
        return self._permits.held + len(self._outbox)

    @property
    def trouble(self) -> LachesisError | None:
        """Why groups or the request for a permit wait, such as no answer or an expired token. None if they do not."""
        return self._trouble or self._permits.trouble

    async def submit(self, group: Group) -> str:
        """Put a ``group`` into the outbox, which is sent in the background. Waits for room in the outbox.

        Returns:
            The group's id.

        Raises:
            InvalidField: A value is wrong; ``errors`` says where.
            NotSent: The service refused groups that were submitted earlier. Submit this group again.
            RunNotFound: The run was deleted.
            TypeError: It is not a `Group`.
        """
        if not isinstance(group, Group):
            raise TypeError(f"group: should be Group(tokens=..., masks=..., scores=...), not {group!r:.80}")
        parcel = Parcel(group.id, group.packed(None), trace_headers(), group.item is not None)
        async with self._changed:
            await self._changed.wait_for(lambda: self._broken or self._outbox.has_room(len(parcel.payload)))
            self._raise_failures()
            self._outbox.put(parcel)
            self._changed.notify_all()
        return parcel.group

    async def flush(self) -> None:
        """Wait until the service has answered for all groups that were submitted before.

        Raises:
            NotSent: The service refused groups.
        """
        last = self._outbox.removed + len(self._outbox)
        async with self._changed:
            await self._changed.wait_for(lambda: self._ended or self._outbox.removed >= last)
            self._raise_failures()

    def curriculum(self, name: str | None = None) -> AsyncCurriculum:
        """Return the run's curriculum with this name, over these connections. On exit, its observations are sent.

        Args:
            name: Name of the curriculum, which you can create later. None means the environment's name.
        """
        return self._curricula.named(self._joining.name if name is None else name)

    async def credits(self) -> Credits:
        """Return how many more groups all members of the environment together may start now.

        To start a group, take a `permit`. It reserves one group for this member.

        Raises:
            LachesisError: The service did not answer within ``retry_budget_s``, or refused the request.
        """
        while not await self._begin_report(max(_SHORTEST_WAIT_S, self.settings.retry_budget_s)):
            if (trouble := self.trouble) is not None:
                raise trouble
            # Without trouble, the others only take long: wait on.
        try:
            return await self._report_now(0, _Retry())
        finally:
            self._reporting.release()

    def permit(self, wait_s: float | None = None) -> AsyncPermit:
        """Wait until another group may start, and count the group as running until the block ends.

        Submit the group in the block. You can hold several permits at once. A long wait is logged with its reason. It
        goes on while the service does not answer or refuses the token, as groups in the outbox wait.

        Args:
            wait_s: Maximum time to wait, seconds, ``> 0``. None means no limit.

        Returns:
            A context manager. It yields the service's answer. Sample with the ``policy_version`` of the answer.

        Raises:
            NoPermit: No group could start in time. The message says why.
            RunNotFound: The run was deleted.
            RuntimeError: The environment left the run.
        """
        return AsyncPermit(self._permits, wait_s)

    async def __aenter__(self) -> Self:
        try:
            joined = await self._sender.send_once_created(self._calls.join(self._joining), self._wait_for_run_s)
        except asyncio.CancelledError:
            await self._undo_join()
            raise
        except BaseException:
            await self._sender.aclose()
            raise
        self._id, self._before_joining = joined.id, self._sender.retries
        # The next environment to join may have sizes that fit. If not, a receipt repeats this warning.
        self._warn([warned for warned in joined.warnings if warned.kind != "sizes_do_not_fit"])
        self._tasks = [create_untraced_task(self._keep_sending()), create_untraced_task(self._keep_alive())]
        for task in self._tasks:
            task.add_done_callback(self._wake_all)
        return self

    async def _undo_join(self) -> None:
        """Close it after a join that was cancelled. The service may have this member: join again for its id, and leave.

        Otherwise it would reserve the minimum share of a member that sends no groups.
        """
        async with self._sender:
            with contextlib.suppress(LachesisError, TimeoutError):
                async with timeout(_LEAVING_S):
                    joined = await self._sender.send(self._calls.join(self._joining), 0.0)
                    await self._send_last(self._calls.leave(joined.id, self.member))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failures: list[LachesisError] = []
        try:
            await self._drain()
            failures = await self._curricula.closed()
        finally:
            await self._leave()
        if refused := self._outbox.failures():
            failures.insert(0, NotSent(refused))
        raise_failures(failures, error)

    async def _leave(self) -> None:
        """Leave the run, also if this is cancelled once more: `asyncio.run` may do so after Ctrl-C."""
        leave = self._calls.leave(self.id, self.member)
        self._id = None
        for task in self._tasks:
            task.cancel()
        async with self._sender:
            try:
                await self._tell()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self._send_last(leave)
            except asyncio.CancelledError:
                await self._send_last(leave)  # it may have been cancelled before it was sent
                raise

    async def _send_last(self, leave: Call[None]) -> None:
        with contextlib.suppress(LachesisError):  # without it, the service notices the silence
            await self._sender.send(leave, _LEAVING_S)

    def _facts(self) -> dict[str, object]:
        joined = {"joined": False} if self._id is None else {"id": self._id, "running_groups": self.running_groups}
        return {"name": self._joining.name, **self.settings.facts(), **joined}

    @property
    def _ended(self) -> bool:
        """Whether nothing is sent any more: it has left, or a background task has failed."""
        return self._id is None or any(task.done() for task in self._tasks)

    @property
    def _broken(self) -> bool:
        return self._ended or self._outbox.has_failures

    def _raise_failures(self) -> None:
        _ = self.id
        for task in self._tasks:
            if task.done():
                task.result()
        if failures := self._outbox.failures():
            raise NotSent(failures)

    def _wake_all(self, _: asyncio.Task[None]) -> None:
        self._waking = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _drain(self) -> None:
        """Send the outbox, for at most ``drain_s``. What is left then has failed."""
        try:
            async with timeout(self._drain_s), self._changed:
                await self._changed.wait_for(lambda: self._ended or not self._outbox)
        except TimeoutError:
            pass
        finally:
            self._outbox.give_up(self._why_left())

    def _why_left(self) -> LachesisError:
        """Return why groups are still in the outbox: the error that ended a background task, or the last trouble."""
        ends = (task.exception() for task in self._tasks if task.done() and not task.cancelled())
        known = (error for error in (*ends, self._trouble) if isinstance(error, LachesisError))
        return next(known, Unreachable(f"there was no answer in {self._drain_s:g} s"))

    async def _keep_sending(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._outbox)
                parcels = self._outbox.next()
            try:
                receipts = await self._sent(parcels)
            except LachesisError as error:
                self._outbox.refused(parcels, error)
            else:
                self.outcomes.update(receipt.status for receipt in receipts.groups)
                self._warn(receipts.warnings)
                self._outbox.arrived(parcels)
                if any(parcel.has_item for parcel in parcels):
                    self._curricula.note_observed(self._joining.name)
            self._trouble = None
            await self._tell()

    async def _sent(self, parcels: Sequence[Parcel]) -> Receipts:
        """Send groups until they are answered.

        If the run was deleted and created again, the id of the environment is void, or that of another one. Then it
        joins again, as it does after a heartbeat, and the groups are sent under its new id.
        """
        retry = _Retry(math.inf, self._note)
        while True:
            environment = self.id
            blobs = [parcel.addressed(environment) for parcel in parcels]
            call = self._calls.submit(blobs, parcels[0].trace, self._joining.name)
            try:
                return await self._sender.send(call, *retry)
            except EnvironmentNotFound as error:
                if self.id == environment:  # else a heartbeat has joined in the meantime
                    await self._join_again(error, retry)

    def _warn(self, warnings: Sequence[Warned]) -> None:
        """Log warnings of the run about this environment, each kind once."""
        for warned in warnings:
            if self._id in warned.environments and warned.kind not in self._warned:
                self._warned.add(warned.kind)
                log.warning("environment %s: %s", self._joining.name, warned.detail)

    def _note(self, trouble: LachesisError) -> None:
        self._trouble = trouble

    async def _begin_report(self, within_s: float) -> bool:
        """Wait until no other report is under way. Return False if one still is after ``within_s``.

        A permit repeats its report without end.
        """
        try:
            async with timeout(within_s):
                return await self._reporting.acquire()
        except TimeoutError:
            return False

    async def _report(self, start_groups: int, retry: _Retry) -> Credits:
        """Report how many groups run here, and ask to start more.

        Reports are sent one at a time, so that they arrive in order. A member that the service has forgotten, for
        example after a network partition, joins again.
        """
        async with self._reporting:
            return await self._report_now(start_groups, retry)

    async def _report_now(self, start_groups: int, retry: _Retry) -> Credits:
        try:
            return await self._beat(start_groups, retry)
        except (MemberNotFound, EnvironmentNotFound) as error:
            await self._join_again(error, retry)
            return await self._beat(start_groups, retry)

    async def _beat(self, start_groups: int, retry: _Retry) -> Credits:
        name, running = self._joining.name, self.running_groups
        call = self._calls.heartbeat(self.id, name, self.member, running, start_groups, self._retries)
        try:
            answer = await self._sender.send(call, *retry)
        except asyncio.CancelledError:  # it may have granted groups that never run: report that soon
            self._reported = running + start_groups
            await self._tell()
            raise
        self._reported = self.running_groups + answer.granted_groups
        return answer

    @property
    def _retries(self) -> int:
        return self._sender.retries - self._before_joining

    async def _join_again(self, reason: ServiceError, retry: _Retry) -> None:
        """Join after the service has forgotten this member, or the whole environment.

        An environment that is still there keeps its settings: an operator may have changed them. One that the run does
        not have gets those of this process, unless another member has made it in the meantime.

        Raises:
            RuntimeError: It has left. No later call would make it leave again.
        """
        _ = self.id
        log.warning("environment %s: %s. Joining again", self._joining.name, reason.detail)
        in_force = EnvironmentCreate(name=self._joining.name, member=self.member)
        own = self._joining.model_copy(update={"change_settings": False})
        joining = in_force if isinstance(reason, MemberNotFound) else own
        try:
            joined = await self._sender.send(self._calls.join(joining), *retry)
        except EnvironmentSettingsDiffer:
            joined = await self._sender.send(self._calls.join(in_force), *retry)
        self._id = joined.id

    async def _until_beat(self) -> None:
        """Wait for ``heartbeat_s``, or until fewer groups run here: then other members may start as many."""
        with contextlib.suppress(TimeoutError):
            async with timeout(self._heartbeat_s), self._changed:
                await self._changed.wait_for(lambda: self.running_groups < self._reported)
        await asyncio.sleep(min(_REPORT_DELAY_S, self._heartbeat_s))

    async def _keep_alive(self) -> None:
        while True:
            await self._until_beat()
            try:
                await self._report(0, _Retry(self._heartbeat_s))
            except RunNotFound:
                raise  # it was deleted, and takes no more groups
            except LachesisError as error:  # such as an expired token, or the answer of a gateway during a restart
                self._reported = self.running_groups  # so that the next report is no sooner than usual
                self._sender.log_trouble(error, f"The next heartbeat follows in {self._heartbeat_s:g} s")


def _own_member_id() -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64].lstrip("._-") or "host"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
