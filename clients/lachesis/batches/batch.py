"""A leased batch, for asyncio."""

from lachesis._prefetch.acquire import Held
from lachesis._prefetch.leased import AsyncLeased, HeldLease
from lachesis._transport.run_calls import Taken
from lachesis.batches.columns import Columns
from lachesis.wire.batch_file import BatchFile
from lachesis.wire.batches import BatchInfo


class AsyncBatch(AsyncLeased, Columns):
    """A batch that this trainer holds until it is acknowledged or given back.

    Its lease is extended in the background. As a context manager it is acknowledged at the end of the block, unless the
    block gave it back. It is given back if the block raises.
    """

    def __init__(self, info: BatchInfo, file: BatchFile, lease: HeldLease) -> None:
        super().__init__(info, file)
        self._lease = lease


def batch_of(held: Held[Taken]) -> AsyncBatch:
    """Return the batch that a trainer has taken."""
    return AsyncBatch(held.taken.info, held.taken.file, held.lease)
