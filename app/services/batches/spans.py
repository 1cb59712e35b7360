"""Read when trainers had the latest batches of a run."""

from app.core.batches.leases import WITH_A_TRAINER
from app.core.batches.pace import BatchSpan
from app.core.runs.view import QueueView
from app.store.batches.records import BatchRecordStore


async def batch_spans(records: BatchRecordStore, run: str, view: QueueView, most: int) -> list[BatchSpan]:
    """Return when batches were formed and ended, oldest first: of the latest batches, and of those that a trainer has.

    For a batch that a trainer has, the end is now. A batch that waits to be handed out again has no span.

    Args:
        records: Knows when batches were formed and ended.
        run: The run's name.
        view: The run, for its leases and its clock.
        most: Most of the latest batches.
    """
    out = {lease.batch_id for lease in view.leases if lease.state in WITH_A_TRAINER}
    spans: list[BatchSpan] = []
    for one in await records.times(run, most, out):
        if one.batch_id in out:
            spans.append(BatchSpan(one.formed_ms, view.clock_ms))
        elif one.ended_ms is not None:
            spans.append(BatchSpan(one.formed_ms, one.ended_ms))
    return sorted(spans, key=lambda one: one.formed_ms)
