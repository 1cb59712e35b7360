"""List the latest batches of a run, and say what one of them consists of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.batches.leases import LeasedGroup
from app.core.runs.view import QueueView
from app.store.batches.records import MOST_RECORDS, BatchRecordStore, RecordedBatch
from app.store.batches.store import BatchStore
from app.store.runs.store import RunStore
from lachesis.wire.errors import BatchNotFound, InvalidField


@dataclass(frozen=True, slots=True)
class BatchPage:
    """Some batches, and where the next page starts; None if this is the last page.

    Attributes:
        batches: The batches, the latest first.
        cursor: Where the next page starts.
        names: Names of environments by id.
        clock_ms: Run clock when the page was read.
    """

    batches: list[RecordedBatch]
    cursor: str | None
    names: Mapping[int, str]
    clock_ms: int


class BatchListing:
    """Lists batches, with a bounded number of reads."""

    def __init__(self, runs: RunStore, batches: BatchStore, records: BatchRecordStore) -> None:
        self._runs = runs
        self._batches = batches
        self._records = records

    async def page(
        self,
        run: str,
        limit: int,
        cursor: str | None = None,
        from_s: float | None = None,
        to_s: float | None = None,
    ) -> BatchPage:
        """Return the next batches. Those that trainers hold and that have no record come last.

        Args:
            run: The run's name.
            limit: Most batches.
            cursor: Where the page starts.
            from_s: When the first of them was formed, seconds since 1970. None for any time.
            to_s: Before when they were formed.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: The batch that the last page ended with has no record any more, or the range ends before it
                begins.
        """
        if from_s is not None and to_s is not None and from_s >= to_s:
            raise InvalidField(f"is {from_s:.0f}, not before to = {to_s:.0f}", ("query", "from"))
        view = await self._runs.existing(run)
        if from_s is None and to_s is None:
            batch_ids, more = await self._next(run, view, cursor, limit)
            batches = await self._recorded(run, batch_ids)
            return BatchPage(batches, batch_ids[-1] if more else None, _names(view), view.clock_ms)
        found = await self._records.latest(run, cursor, MOST_RECORDS)
        if found is None:
            raise _expired_cursor()
        ahead_ms = await self._records.now_ms() - view.clock_ms  # of the run clock
        batches = [
            one
            for one in await self._recorded(run, found[0])
            if _is_between(one.record.formed_ms, from_s, to_s, ahead_ms)
        ]
        following = batches[limit - 1].record.batch_id if len(batches) > limit else None
        return BatchPage(batches[:limit], following, _names(view), view.clock_ms)

    async def _recorded(self, run: str, batch_ids: Sequence[str]) -> list[RecordedBatch]:
        """Read the batches that the run still knows."""
        return [one for one in await self._records.recorded(run, batch_ids) if one is not None]

    async def _next(self, run: str, view: QueueView, cursor: str | None, limit: int) -> tuple[list[str], bool]:
        """Return the ids on a page, and whether there are more. Batches without a record are older than all others."""
        found = await self._records.latest(run, cursor, limit)
        if found is not None and found[1]:
            return found
        leased = [lease.batch_id for lease in reversed(view.leases)]
        rest = await self._records.unrecorded(run, leased)
        if found is not None:
            rest = found[0] + rest
        elif cursor in rest:
            rest = rest[rest.index(cursor) + 1 :]
        else:
            raise _expired_cursor()
        return rest[:limit], len(rest) > limit

    async def one(self, run: str, batch_id: str) -> tuple[BatchPage, list[LeasedGroup] | None]:
        """Return a batch, and its groups in training order; None once the run does not keep them.

        Raises:
            RunNotFound: There is no such run.
            BatchNotFound: The run knows nothing of the batch.
        """
        view = await self._runs.existing(run)
        (found,) = await self._records.recorded(run, [batch_id])
        if found is None:
            raise BatchNotFound(f"run {run} knows no batch {batch_id}")
        groups = await self._batches.groups_of(run, batch_id)
        if groups is None and found.is_kept:
            (kept,) = await self._batches.kept_groups(run, [batch_id])
            groups = kept or None
        return BatchPage([found], None, _names(view), view.clock_ms), groups


def _expired_cursor() -> InvalidField:
    return InvalidField("has expired: newer batches replaced this page; get the first one", ("query", "cursor"))


def _names(view: QueueView) -> Mapping[int, str]:
    return {one.environment: one.name for one in view.environments.values()}


def _is_between(formed_ms: int | None, from_s: float | None, to_s: float | None, ahead_ms: int) -> bool:
    if formed_ms is None:
        return False
    formed_s = (formed_ms + ahead_ms) / 1000
    return (from_s is None or from_s <= formed_s) and (to_s is None or formed_s < to_s)
