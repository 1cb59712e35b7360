"""Make chunks of the replay buffer from groups of acknowledged batches."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import assert_never
from weakref import WeakValueDictionary

from app.core.replay.buffer import Fragment, chunk_drop_reason, chunk_of, versions_counted
from app.core.replay.sampling import weight_of
from app.services.replay.planning import SPARE_VICTIMS, beyond_room
from app.store.redis.keys import NONE
from app.store.replay.entries import GROUP_WORKER, fragment_rest
from app.store.replay.groups import GroupInsertion, GroupInsertionStore, GroupToInsert
from app.store.replay.insertions import NewChunk
from app.store.replay.view import ReplayView
from lachesis.wire.states import ChunkDropReason

_AT_ONCE = 200  # groups; a script makes chunks of them within ten milliseconds


class GroupInserter:
    """Makes chunks from groups. These belong to the buffer from their acknowledgement on."""

    def __init__(self, insertions: GroupInsertionStore) -> None:
        self._insertions = insertions
        # By run, because concurrent calls would make each other retry.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def insert(self, run: str) -> int:
        """Make chunks from all groups that entered; return how many groups. Safe to repeat, and for concurrent calls.

        The rate limiter counts these inserts and never blocks them, because an acknowledgement must not wait.
        """
        taken, candidates = 0, _AT_ONCE + SPARE_VICTIMS
        async with self._locks.setdefault(run, asyncio.Lock()):
            while (found := await self._insertions.look(run, _AT_ONCE, candidates)) is not None:
                view, groups, victims = found
                insertion = plan_group_insertion(view, groups, victims)
                match await self._insertions.commit(run, insertion, view):
                    case "taken":
                        taken += len(insertion.chunks)
                    case "crowded":
                        candidates *= 2
                    case "outdated":
                        pass  # read and plan again
                    case _ as never:
                        assert_never(never)
        return taken


def plan_group_insertion(view: ReplayView, groups: Sequence[GroupToInsert], victims: Sequence[str]) -> GroupInsertion:
    """Plan which of the entered groups become chunks, and which the buffer's rules drop at once."""
    context, settings = view.context, view.settings
    chunks: list[NewChunk] = []
    rests: dict[str, str] = {}
    dropped: dict[str, ChunkDropReason] = {}
    for group in groups:
        fragment = _fragment(group, context.version)
        chunk = chunk_of([fragment], context.clock_ms)
        reason = chunk_drop_reason(chunk, context, settings)
        if reason is not None:
            dropped[group.group_id] = reason
        else:
            rests[group.group_id] = fragment_rest(fragment, _facts(group))
            chunks.append(NewChunk(chunk, weight_of(chunk.priority, settings.sampling.alpha), (group.group_id,)))
    surplus = beyond_room(chunks, settings)
    dropped |= {group_id: "evicted" for new in chunks[:surplus] for group_id in new.fragment_ids}
    sizes = {group.group_id: group.entry.payload_bytes for group in groups}
    counts = Counter(f"dropped:{reason}" for reason in dropped.values())
    counts["waiting_fragments"] = -len(groups)
    counts["waiting_bytes"] = -sum(sizes.values())
    kept = [group_id for group_id in rests if group_id not in dropped]
    return GroupInsertion(
        groups=tuple(sizes),
        fragments=tuple((group_id, sizes[group_id], rests[group_id]) for group_id in kept),
        chunks=tuple(chunks[surplus:]),
        victims=tuple(victims) if kept else (),
        freed=tuple(dropped),
        counts=counts,
    )


def _fragment(group: GroupToInsert, current: int) -> Fragment:
    entry = group.entry
    environment = entry.lane[0]
    return Fragment(
        worker=f"{GROUP_WORKER}{NONE if environment is None else environment}",
        session=group.session,
        number=group.number,
        versions=versions_counted(group.version, entry.versions, current),
        payload_bytes=entry.payload_bytes,
        checksum=entry.checksum,
        accepted_ms=entry.accepted_ms,
    )


def _facts(group: GroupToInsert) -> str:
    """Return the facts about a group, apart from its place, for the records of samples."""
    entry = group.entry
    facts = {
        "group": entry.given_id,
        "environment": entry.lane[0],
        "sequences": entry.lane[1],
        "reward": entry.reward,
        "cost": entry.weight.declared,
    }
    if entry.mark is not None:
        facts |= {"filtered_by": entry.mark.filtered_by, "loss_weight": entry.mark.loss_weight}
    return json.dumps({name: value for name, value in facts.items() if value is not None}, separators=(",", ":"))
