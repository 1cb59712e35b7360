"""Groups of acknowledged batches in Redis, on their way into the replay buffer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from app.store.groups.entries import StoredGroup, parse_entry
from app.store.redis.client import RedisClient
from app.store.redis.keys import ReplayKeys, RunKeys
from app.store.redis.scripts import outcome
from app.store.replay import scripts
from app.store.replay.entries import FragmentRecord, parse_fragment
from app.store.replay.insertions import NewChunk, chunk_values, fragment_values
from app.store.replay.view import ReplayView, candidate_commands, read_candidates, read_view, view_commands


@dataclass(frozen=True, slots=True)
class GroupToInsert:
    """A group that was trained on and is to become a chunk.

    Attributes:
        group_id: Its id, that of its payload.
        number: Its place among those that entered.
        session: The session in progress when it was acknowledged.
        version: The policy version it counts as sampled by.
        entry: Its index entry in the run.
    """

    group_id: str
    number: int
    session: int
    version: int
    entry: StoredGroup


@dataclass(frozen=True, slots=True)
class GroupInsertion:
    """A plan for groups that entered, carried out for all or none.

    Attributes:
        groups: Their ids.
        fragments: For the groups that become chunks: id, bytes, the rest of the fragment's entry.
        chunks: The chunks.
        victims: Chunks to evict, first come, until there is room.
        freed: Ids of the groups that become no chunk.
        counts: Increases of totals, by name.
    """

    groups: tuple[str, ...]
    fragments: tuple[tuple[str, int, str], ...]
    chunks: tuple[NewChunk, ...]
    victims: tuple[str, ...]
    freed: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)


class GroupInsertionStore:
    """Reads which groups are to become chunks, and makes chunks of them."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def look(
        self, run: str, most: int, candidates: int
    ) -> tuple[ReplayView, list[GroupToInsert], list[str]] | None:
        """Read the buffer, the groups that entered first, and the chunks that would be evicted first.

        Args:
            run: The run's name.
            most: How many groups to read.
            candidates: How many chunks to read.

        Returns:
            None if there is no such group, or if another process takes them in.
        """
        keys = RunKeys(run)
        entering = ("ZRANGE", keys.replay_part("entering"), 0, most - 1)
        *replies, found = await self._connection.pipeline([*view_commands(keys), entering])
        view = read_view(replies)
        if view is None or not found:
            return None
        group_ids = [group_id.decode() for group_id in found]
        wanted = ("HMGET", keys.replay_part("fragments"), *group_ids)
        commands = [wanted, *candidate_commands(keys, view.settings.eviction, candidates)]
        entries, *victims = await self._connection.pipeline(commands)
        pairs = zip(group_ids, entries, strict=True)
        stored = [parse_fragment(group_id, entry.decode()) for group_id, entry in pairs if entry is not None]
        groups = [_entering(one) for one in stored if one.chunk_id is None]  # another process may have taken them in
        return (view, groups, read_candidates(victims, candidates)) if groups else None

    async def commit(self, run: str, insertion: GroupInsertion, view: ReplayView) -> scripts.GroupInsertionOutcome:
        """Carry out what was planned on ``view``. Safe to repeat.

        Returns:
            ``taken``; or, with nothing changed, ``outdated`` or ``crowded`` (more victims are needed): look again, plan
            again.
        """
        settings = view.settings
        plan = {
            "fragments": [fragment_values(*one) for one in insertion.fragments],
            "chunks": [chunk_values(one) for one in insertion.chunks],
            "victims": insertion.victims,
            "freed": insertion.freed,
            "counts": insertion.counts,
        }
        command = scripts.insert_groups(
            ReplayKeys(RunKeys(run)),
            revision=view.revision,
            policy_version=view.context.version,
            max_chunks=settings.max_chunks,
            max_bytes=settings.max_bytes,
            plan=plan,
            group_ids=insertion.groups,
        )
        return outcome(await self._connection.run(command), get_args(scripts.GroupInsertionOutcome))


def _entering(stored: FragmentRecord) -> GroupToInsert:
    entry = parse_entry(json.loads(stored.facts)["entry"])
    return GroupToInsert(stored.fragment_id, stored.number, stored.session, stored.version, entry)
