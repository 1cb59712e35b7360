"""Members of environments: worker processes that join under one name, send heartbeats, and leave."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from app.store.environments import scripts
from app.store.redis.client import RedisClient
from app.store.redis.keys import NONE, RunKeys, member_name, parse_member_name
from app.store.redis.pipeline import Command
from app.store.runs.clock import CLOCK_COMMANDS, CLOCK_FIELDS, Now
from app.store.runs.view import parse_environment, reading
from lachesis.wire.errors import MemberNotFound, RunFull

MOST_MEMBERS = 262_144
"""Most members of a run, so that a job that keeps restarting cannot fill the store; silent members expire."""

_PAGE = 1000  # about so many members in a step


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A worker process of an environment.

    Attributes:
        member: Its id, unique in the environment.
        joined_ms: Run clock when it joined, milliseconds.
        running_groups: Groups that it has started and not submitted.
        permits: Those of them that were granted to it.
        retries: Requests that it repeated since it joined; None if it reports none.
        heard_ms: Run clock at its last sign of life, milliseconds.
    """

    member: str
    joined_ms: int
    running_groups: int
    permits: int
    retries: int | None
    heard_ms: int = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """An environment that asks, and its member.

    Attributes:
        configured: Whether the run has a configuration.
        name: The name that the environment asked for; None if the run has no such environment.
        clock_ms: The run clock, milliseconds.
        step: Batches taken so far in the run, from the starting step on.
        started: Groups that the members of the environment have started, ended ones included.
        member: The member, or None if the environment has no such member.
    """

    configured: bool
    name: str | None
    clock_ms: int
    step: int
    started: int
    member: MemberRecord | None


class MemberStore:
    """Reads and changes the members of a run's environments."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def put(self, run: str, environment: int, member: str) -> bool | None:
        """Make a process a member, or let it join again under its id. It starts with no running groups.

        Returns:
            Whether it is new; None if there is no such environment.

        Raises:
            RunFull: The run has `MOST_MEMBERS` members.
        """
        keys = RunKeys(run)
        name = member_name(environment, member)
        command = scripts.put_member(keys, environment=environment, member=name, most_members=MOST_MEMBERS)
        put = int(await self._connection.run(command))
        if put < 0:
            raise RunFull(f"the run has {MOST_MEMBERS} members")
        return bool(put - 1) if put else None

    async def caller(self, run: str, environment: int, member: str = "") -> Caller:
        """Read an environment and one of its members, in one round trip that costs the same in every run.

        Raises:
            UnreadableRecord: The record of the environment cannot be read.
        """
        keys = RunKeys(run)
        commands: list[Command] = [
            *CLOCK_COMMANDS,
            ("HMGET", keys.run, *CLOCK_FIELDS, "step"),
            ("HEXISTS", keys.run, "config"),
            ("HGET", keys.environments, environment),
            ("HGET", keys.started, environment),
            ("HGET", keys.members, member_name(environment, member)),
        ]
        replies = await self._connection.pipeline(commands)
        time, service, (*clock, step), configured, known, started, record = replies
        with reading(run):
            name = None if known is None else parse_environment(known).desired_name
        return Caller(
            configured=bool(configured),
            name=name,
            clock_ms=Now(time, service).run_clock_of(clock),
            step=int(step or 0),
            started=int(started or 0),
            member=None if record is None else _parse(member, record),
        )

    async def of_environment(self, run: str, environment: int) -> list[MemberRecord]:
        """Return an environment's members by id."""
        keys = RunKeys(run)
        records, heard = await self._connection.pipeline(
            [("HGETALL", keys.members), ("ZRANGE", keys.members_heard, 0, -1, "WITHSCORES")]
        )
        heard_ms = {name: int(score) for name, score in heard}
        members = []
        for name, record in records.items():
            owner, member = parse_member_name(name.decode())
            if owner == environment:
                members.append(_parse(member, record, heard_ms.get(name, 0)))
        return sorted(members, key=lambda member: member.member)

    async def pages(self, run: str, environment: int) -> AsyncIterator[list[str]]:
        """Yield the ids of an environment's members, about a thousand at a time.

        It yields each member that stays, maybe twice, and may leave out who joins in the meantime.
        """
        keys, cursor = RunKeys(run), 0
        while True:
            cursor, found = await self._connection.scan(keys.members, cursor, _PAGE)
            members = (parse_member_name(name.decode()) for name in found)
            if own := [member for owner, member in members if owner == environment]:
                yield own
            if not cursor:
                return

    async def note_running(
        self,
        run: str,
        environment: int,
        member: str,
        *,
        running: int | None,
        start: int,
        allowed: int,
        after: int,
        retries: int | None = None,
    ) -> int:
        """Store how many groups a member runs, and let it start more.

        Args:
            run: The run's name.
            environment: The environment's id.
            member: The member's id.
            running: Groups that it runs; None: as many as it reported last.
            start: Groups that it wants to start in addition.
            allowed: Groups that the environment could start when this was decided.
            after: Groups that its members had started by then. Groups started since then reduce ``allowed``.
            retries: Requests that it repeated since it joined; None: as many as it reported last.

        Returns:
            Groups that the member may start. They already count as running.

        Raises:
            MemberNotFound: The environment has no such member.
        """
        command = scripts.update_running_groups(
            RunKeys(run),
            member=member_name(environment, member),
            reported=running,
            start=start,
            allowed=allowed,
            after=after,
            retries=retries,
        )
        answer = await self._connection.run(command)
        if not answer:
            raise not_a_member(run, environment, member)
        return int(answer[0])

    async def remove(self, run: str, environment: int, members: Sequence[str]) -> tuple[list[str], int]:
        """Remove members; return those that were removed, and how many members the environment still has."""
        names = [member_name(environment, member) for member in members]
        command = scripts.remove_members(RunKeys(run), environment=environment, leaving=names)
        removed, left = await self._connection.run(command)
        return [parse_member_name(name.decode())[1] for name in removed], int(left)


def _parse(member: str, record: bytes, heard_ms: int = 0) -> MemberRecord:
    joined_ms, running, *later = record.decode().split()  # one of an earlier version has two words
    permits, retried = later or (running, NONE)
    retries = None if retried == NONE else int(retried)
    return MemberRecord(member, int(joined_ms), int(running), int(permits), retries, heard_ms)


def not_a_member(run: str, environment: int, member: str) -> MemberNotFound:
    """Return the error for an unknown member."""
    return MemberNotFound(
        f"environment {environment} of run {run} has no member {member}: it left, was silent for too long, or never "
        "joined; join again"
    )
