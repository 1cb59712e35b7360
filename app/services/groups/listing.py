"""List the groups of a run, page by page, with a bounded number of reads for each page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.core.batches.leases import Lease, LeasedGroup
from app.core.groups.listing import (
    BATCH_END,
    LEFT,
    MOST_LANES,
    BatchPosition,
    GroupQuery,
    GroupRow,
    LanesPosition,
    LeftPosition,
    Position,
    Start,
    find_environments,
    first_share,
    lanes_to_read_on,
    merged_lanes,
    next_batches,
    section_after,
)
from app.core.groups.staleness import staleness
from app.core.model import LaneId
from app.core.runs.view import QueueView
from app.store.batches.store import BatchStore
from app.store.groups.entries import EndedGroup, StoredGroup
from app.store.groups.listing import GroupListStore, LeftGroup
from app.store.groups.store import GroupStore
from app.store.runs.store import RunStore
from app.store.runs.view import reading
from lachesis.wire.criteria import GroupCriteria
from lachesis.wire.states import BUFFERED, DELIVERED, DROPPED, KEPT, LEASED, QUEUED, GroupState

_AT_ONCE = 500  # most groups that are read in a step of a page
_BATCHES_AT_ONCE = 100  # most kept batches


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of a listing.

    Attributes:
        groups: The groups that match.
        looked_at: Number of groups that this page looked at.
        position: Where to continue; None if there are no more.
        names: Names of environments by id.
        clock_ms: Run clock when the page was read.
    """

    groups: list[GroupRow]
    looked_at: int
    position: Position | None
    names: Mapping[int, str]
    clock_ms: int


@dataclass(frozen=True, slots=True)
class _ListingStep:
    """What a step of a page looked at: groups (None: it has moved) and the position after each; what follows."""

    looked_at: list[tuple[GroupRow | None, Position]]
    following: Position | None


class GroupListing:
    """Lists groups that wait, are in batches, or have left."""

    def __init__(self, runs: RunStore, groups: GroupStore, listed: GroupListStore, batches: BatchStore) -> None:
        self._runs = runs
        self._groups = groups
        self._listed = listed
        self._batches = batches

    async def page(
        self,
        run: str,
        criteria: GroupCriteria,
        *,
        limit: int,
        most: int,
        after: Position | None = None,
    ) -> GroupPage:
        """Return the next groups that match. Groups that move in the meantime may be missed, or come twice.

        Args:
            run: The run's name.
            criteria: The criteria.
            limit: Most groups to return.
            most: Most groups to look at.
            after: Where the last page stopped; None to begin.

        Raises:
            RunNotFound: There is no such run.
            EnvironmentNotFound: No environment has this name.
        """
        view = await self._runs.existing(run)
        wanted = await resolved_query(self._listed, view, criteria)
        names = {one.environment: one.name for one in view.environments.values()}
        rows: list[GroupRow] = []
        looked_at, position = 0, _begin(wanted, after)
        while position is not None and looked_at < most and len(rows) < limit:
            at_once = min(_AT_ONCE, most - looked_at, _AT_ONCE if looked_at else limit)
            with reading(run):
                step = await self._step(run, view, wanted, position, at_once)
                found = await self._with_items(run, wanted, step)
            position = step.following
            for group, (_, behind) in zip(found, step.looked_at, strict=True):
                looked_at += 1
                if group is not None:
                    rows.append(group)
                    if len(rows) == limit:
                        position = behind
                        break
        return GroupPage(await self._completed(run, wanted, rows), looked_at, position, names, view.clock_ms)

    async def _with_items(self, run: str, wanted: GroupQuery, step: _ListingStep) -> list[GroupRow | None]:
        """Return the groups of a step that match, and None for others. Items are read if the query is about them."""
        found = [group if group and wanted.may_match(group) else None for group, _ in step.looked_at]
        if wanted.item is None:
            return found
        items = await self._items(run, [group for group in found if group])
        return [
            None if group is None or items[group.group_id] != wanted.item else replace(group, item=wanted.item)
            for group in found
        ]

    async def _items(self, run: str, groups: list[GroupRow]) -> dict[str, str | None]:
        ids = [group.group_id for group in groups]
        return dict(zip(ids, await self._listed.items(run, ids), strict=True))

    async def _completed(self, run: str, wanted: GroupQuery, rows: list[GroupRow]) -> list[GroupRow]:
        """Add what is read of listed groups only: items, and the batches of groups that have left."""
        if wanted.item is None:
            items = await self._items(run, rows)
            rows = [replace(group, item=items[group.group_id]) for group in rows]
        ends = [end for end in {_end(group) for group in rows} if end is not None]
        batches = dict(zip(ends, await self._listed.batches_of(run, ends), strict=True))
        return [group if (end := _end(group)) is None else replace(group, batch_id=batches[end]) for group in rows]

    async def _step(self, run: str, view: QueueView, wanted: GroupQuery, position: Position, most: int) -> _ListingStep:
        match position:
            case LanesPosition() | Start() if position.section in (QUEUED, BUFFERED):
                return await self._waiting(run, view, wanted, position, most)
            case _ if position.section == LEFT:
                return await self._that_left(run, position, most)
            case _:
                return await self._in_batches(run, view, wanted, position, most)

    async def _waiting(
        self, run: str, view: QueueView, wanted: GroupQuery, position: Start | LanesPosition, most: int
    ) -> _ListingStep:
        state, counts = (QUEUED, view.lanes) if position.section == QUEUED else (BUFFERED, view.buffers)
        merged = merged_lanes(filter(wanted.has_lane, counts), position, MOST_LANES)
        if merged is None:
            return _ListingStep([], section_after(state, wanted.sections))
        at, lanes = merged
        newest = await self._newest(run, at, lanes, most)
        entries = await self._groups.entries(run, [group_id for _, group_id in newest])
        looked_at: list[tuple[GroupRow | None, Position]] = [
            (None if entry is None else held_group(group_id, entry, state, view), at._replace(arrival=arrival))
            for (arrival, group_id), entry in zip(newest, entries, strict=True)
        ]
        return _ListingStep(looked_at, looked_at[-1][1] if len(newest) == most else at._replace(arrival=0))

    async def _newest(self, run: str, at: LanesPosition, lanes: list[LaneId], most: int) -> list[tuple[int, str]]:
        """Read the newest groups of several lanes before a position: arrivals and ids."""
        share = first_share(len(lanes), most)
        first = await self._listed.newest(run, at.section, dict.fromkeys(lanes, (at.arrival, 0)), share)
        rest = lanes_to_read_on(first, share, most)
        more = await self._listed.newest(run, at.section, rest, most) if rest else {}
        found = [group for part in (first, more) for groups in part.values() for group in groups]
        return sorted(((group.arrival, group.group_id) for group in found), reverse=True)[:most]

    async def _in_batches(
        self, run: str, view: QueueView, wanted: GroupQuery, position: Position, most: int
    ) -> _ListingStep:
        state = LEASED if position.section == LEASED else KEPT
        leases = await self._leases(run, view, position)
        batches = next_batches({(lease.step, lease.batch_id): lease.groups for lease in leases}, position, most)
        if not batches:
            return _ListingStep([], section_after(state, wanted.sections))
        contents = await self._contents(run, state, [at.batch_id for at in batches])
        part = [
            (group, at._replace(place=place), ended_ms)
            for at, (groups, ended_ms) in zip(batches, contents, strict=True)
            for place, group in enumerate(groups[at.place :], start=at.place + 1)
        ][:most]
        entries = await self._groups.entries(run, [group.group_id for group, _, _ in part])
        looked_at: list[tuple[GroupRow | None, Position]] = []
        for (group, at, ended_ms), entry in zip(part, entries, strict=True):
            listed = None
            if entry is not None and group.replayed is None:  # a replayed group was delivered before, and left then
                listed = held_group(group.group_id, entry, state, view)
                listed = replace(listed, batch_id=at.batch_id, step=at.step, ended_ms=ended_ms)
            looked_at.append((listed, at))
        return _ListingStep(looked_at, looked_at[-1][1] if len(part) == most else batches[-1]._replace(place=BATCH_END))

    async def _leases(self, run: str, view: QueueView, position: Position) -> Iterable[Lease]:
        """Return the leases of all leased batches, or of the kept ones that come next after a position."""
        if position.section == LEASED:
            return view.leases
        step = position.step if isinstance(position, BatchPosition) else None
        return [kept.lease for kept in await self._batches.kept_from(run, step, _BATCHES_AT_ONCE)]

    async def _contents(
        self, run: str, state: GroupState, batch_ids: Sequence[str]
    ) -> Iterable[tuple[list[LeasedGroup], int | None]]:
        """Return the groups of each batch, and the run clock when it ended."""
        if state == LEASED:
            return [(groups, None) for groups in await self._batches.leased_groups(run, batch_ids)]
        kept, ends = await self._batches.kept_groups(run, batch_ids), await self._batches.ends_of(run, batch_ids)
        return [(groups, None if end is None else end.clock_ms) for groups, end in zip(kept, ends, strict=True)]

    async def _that_left(self, run: str, position: Position, most: int) -> _ListingStep:
        at = position if isinstance(position, LeftPosition) else None
        found = await self._listed.left(run, at, most)
        looked_at: list[tuple[GroupRow | None, Position]] = [(_left(record), record.position) for record in found]
        return _ListingStep(looked_at, found[-1].position if len(found) == most else None)


async def resolved_query(listed: GroupListStore, view: QueueView, criteria: GroupCriteria) -> GroupQuery:
    """Find the environment of criteria by its id or name, or ``none``, and the run clock of their times.

    Raises:
        EnvironmentNotFound: No environment has this name.
    """
    wanted = GroupQuery(**dict(criteria))
    found: dict[str, Any] = {"environments": find_environments(wanted.environment_id, view.environments)}
    times_s = {"received_from_ms": wanted.received_from_s, "received_to_ms": wanted.received_to_s}
    if any(one is not None for one in times_s.values()):
        ahead_ms = await listed.now_ms() - view.clock_ms  # of the run clock
        found |= {name: None if one is None else 1000 * one - ahead_ms for name, one in times_s.items()}
    return wanted.model_copy(update=found)


def _begin(wanted: GroupQuery, after: Position | None) -> Position | None:
    """Return where a page begins: a section in which nothing can match is passed over."""
    sections = wanted.sections
    if after is None:
        return Start(sections[0]) if sections else None
    return after if after.section in sections else section_after(after.section, sections)


def _end(group: GroupRow) -> tuple[int, int] | None:
    """Return the step and the end of a group that left in a batch whose id is still to be read."""
    if group.batch_id is not None or group.step is None or group.ended_ms is None:
        return None
    return group.step, group.ended_ms


def held_group(group_id: str, entry: StoredGroup, state: GroupState, view: QueueView) -> GroupRow:
    """Describe a group that the run holds."""
    environment, size = entry.lane
    return GroupRow(
        group_id=group_id,
        shown_id=entry.given_id or group_id,
        state=state,
        environment=environment,
        size=size,
        payload_bytes=entry.payload_bytes,
        accepted_ms=entry.accepted_ms,
        policy_version=entry.policy_version,
        staleness=None if state == KEPT else staleness(entry.policy_version, view.policy_version),
        tokens=entry.weight.tokens,
        mean_score=entry.reward,
        filtered_by=None if entry.mark is None else entry.mark.filtered_by,
    )


def ended_group(group_id: str, ended: EndedGroup, shown_id: str) -> GroupRow:
    """Describe a group that has left, without its batch."""
    entry = ended.entry
    environment, size = entry.lane
    return GroupRow(
        group_id=group_id,
        shown_id=shown_id,
        state=DROPPED if ended.reason else DELIVERED,
        environment=environment,
        size=size,
        payload_bytes=entry.payload_bytes,
        accepted_ms=entry.accepted_ms,
        policy_version=entry.policy_version,
        step=ended.step,
        ended_ms=ended.clock_ms,
        reason=ended.reason,
        filtered_by=None if entry.mark is None else entry.mark.filtered_by,
    )


def _left(record: LeftGroup) -> GroupRow | None:
    """Describe a group that has left; None if it is held or known again, or if it left again later."""
    if record.known is None or record.known.ended is None or record.held:
        return None
    if record.known.ended.clock_ms > record.position.clock_ms:
        return None
    return ended_group(record.known.group_id, record.known.ended, record.position.name)
