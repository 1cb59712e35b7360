"""List the latest batches of a run, and say what one of them consists of."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.batches.leases import LeasedGroup
from app.core.runs.view import RunView
from app.store.batches.records import BatchRecordStore, RecordedBatch
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

    async def page(self, run: str, limit: int, cursor: str | None = None) -> BatchPage:
        """Return the next batches. Those that trainers hold and that have no record come last.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: The batch that the last page ended with has no record any more.
        """
        view = await self._runs.existing(run)
        found = await self._records.latest(run, cursor, limit)
        if found is None:
            raise InvalidField("newer batches have taken the place of this page; start again", ("query", "cursor"))
        batch_ids, more = found
        if not more:
            batch_ids += await self._records.unrecorded(run, [lease.batch_id for lease in view.leases])
        batches = [one for one in await self._records.recorded(run, batch_ids) if one is not None]
        return BatchPage(batches, batch_ids[-1] if more else None, _names(view), view.clock_ms)

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


def _names(view: RunView) -> Mapping[int, str]:
    return {one.environment: one.name for one in view.environments.values()}
