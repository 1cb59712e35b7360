"""Recognise groups by their ids, also those that have left, until the run forgets them."""

from collections.abc import Sequence

from app.core.runs.settings import Policy
from app.store.groups import scripts
from app.store.groups.entries import KnownGroup, group_name, parse_known
from app.store.groups.store import GroupStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Command
from app.store.runs.clock import CLOCK_COMMANDS, CLOCK_FIELDS, Now
from app.store.runs.view import parse_policy

MOST_FORGOTTEN = 1000
"""Groups and batches that `KnownGroupStore.forget_old` looks at in one call."""


class KnownGroupStore:
    """Reads and forgets what a run knows of groups that it holds, or that have left lately."""

    def __init__(self, connection: RedisClient, groups: GroupStore) -> None:
        self._connection = connection
        self._groups = groups

    async def find(self, run: str, ids: Sequence[str]) -> dict[str, KnownGroup]:
        """Read groups that the run holds, or that left lately, by ids that their senders or the service gave them.

        Ids of other groups are left out. A group that has both ids is known by that of its sender.
        """
        names = [*map(group_name, ids), *ids]
        found = await self._connection.call("HMGET", RunKeys(run).known, *names) if ids else []
        pairs = zip(ids, found[: len(ids)], found[len(ids) :], strict=True)
        return {given: parse_known((by_name or by_id).decode()) for given, by_name, by_id in pairs if by_name or by_id}

    async def recognised(self, run: str, given_ids: Sequence[str]) -> frozenset[str]:
        """Return which of the senders' ids are those of groups that the run recognises if they are sent again."""
        keys = RunKeys(run)
        of_run: Command = ("HMGET", keys.run, "policy", *CLOCK_FIELDS)
        names: Command = ("HMGET", keys.known, *map(group_name, given_ids))
        time, service, (policy, *clock), found = await self._connection.pipeline([*CLOCK_COMMANDS, of_run, names])
        since_ms = Now(time, service).run_clock_of(clock) - parse_policy(policy).dedup_ms
        known = {given: parse_known(text.decode()) for given, text in zip(given_ids, found, strict=True) if text}
        lately = {given for given, one in known.items() if one.ended is None or one.ended.entry.accepted_ms > since_ms}
        others = known.keys() - lately
        entries = await self._groups.entries(run, [known[given].group_id for given in others])
        return frozenset(lately | {given for given, entry in zip(others, entries, strict=True) if entry})

    async def remembered(self, run: str) -> int:
        """Count the groups that have left and that the run still knows."""
        keys = RunKeys(run)
        known, held = await self._connection.pipeline([("HLEN", keys.known), ("HLEN", keys.groups)])
        return max(0, int(known) - int(held))

    async def forget_old(self, run: str) -> int:
        """Forget groups and batches that left or ended long ago; return how many were looked at."""
        command = scripts.expire_history(RunKeys(run), most=MOST_FORGOTTEN, remembered_ms=Policy().remembered_ms)
        return int(await self._connection.run(command))
