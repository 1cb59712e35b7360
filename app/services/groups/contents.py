"""Read the contents of one group, as long as the run keeps them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.services.groups.history import MOST_MOVES, GroupFacts, GroupHistories
from app.store.groups.listing import GroupListStore
from app.store.groups.store import GroupStore
from app.store.redis.compare_and_swap import Attempts
from lachesis.wire.errors import GroupGone


@dataclass(frozen=True, slots=True)
class KeptContents:
    """A group, and its contents.

    Attributes:
        facts: Where the group is.
        payload: Its columns, a safetensors blob.
    """

    facts: GroupFacts
    payload: bytes


class GroupContentReader:
    """Reads groups that wait, are in batches, are kept for a rewind, or are in the replay buffer or its snapshots."""

    def __init__(self, groups: GroupStore, listed: GroupListStore, histories: GroupHistories) -> None:
        self._groups = groups
        self._listed = listed
        self._histories = histories

    async def of(
        self, run: str, given_id: str, admit: Callable[[GroupFacts], Awaitable[None]] | None = None
    ) -> KeptContents:
        """Return a group and its contents.

        Args:
            run: The run's name.
            given_id: The group's id.
            admit: Awaited before its contents are read, maybe several times. An error of it is raised.

        Raises:
            RunNotFound: There is no such run.
            GroupNotFound: The run has no such group, or has forgotten it.
            GroupGone: The group has left, and its contents are not kept. The message says why, and since when.
        """
        attempts = Attempts("read a group", run, MOST_MOVES)
        while attempts.again():
            facts = await self._histories.of(run, given_id)
            if admit is not None:
                await admit(facts)
            payload, is_kept = await self._listed.payload(run, facts.group.group_id)
            if is_kept and payload is not None:
                return KeptContents(facts, payload)
            if facts.group.ended_ms is not None or is_kept:
                raise GroupGone(f"group {given_id} {_why(facts)}")

    async def newest(self, run: str, admit: Callable[[int], Awaitable[None]]) -> bytes | None:
        """Return the columns of the newest group, even if it has left the run; None before there is one.

        Args:
            run: The run's name.
            admit: Awaited with the bytes of the columns before they are read. An error of it is raised.
        """
        return await self._groups.latest(run, admit)

    async def item(self, run: str, facts: GroupFacts) -> str | None:
        """Return the item of a group; None if it names none, or if its contents are gone or their header is large."""
        (item,) = await self._listed.items(run, [facts.group.group_id])
        return item


def _why(facts: GroupFacts) -> str:
    group, ended_age_s = facts.group, facts.group.ended_age_s(facts.clock_ms)
    if ended_age_s is None:
        return "has lost its contents in Redis: a batch that would have it drops it as payload_lost"
    left = f"left {ended_age_s:.1f} s ago, and its contents are not kept"
    if group.reason is not None:
        return f"{left}: it was dropped ({group.reason})"
    return f"{left}: it was delivered in batch {group.batch_id} (step {group.step})"
