"""A batch in hand, for asyncio."""

from lachesis._prefetch.in_hand import AsyncInHand
from lachesis._prefetch.leased import Lease
from lachesis.batches.columns import Columns
from lachesis.wire.batch_file import BatchFile
from lachesis.wire.batches import BatchInfo


class AsyncBatch(AsyncInHand, Columns):
    """A batch that this trainer holds until it is acknowledged or given back; its lease is extended meanwhile.

    As a context manager it is acknowledged at the end of the block, or given back when that raises.
    """

    _twin = "Batch"

    def __init__(self, info: BatchInfo, file: BatchFile, lease: Lease) -> None:
        super().__init__(info, file)
        self._lease = lease

    async def ack(self) -> None:
        """End the batch: it was trained on. Safe to repeat.

        Raises:
            LeaseLost: The lease ran out and the batch was, or will be, handed out again: what was made of it here
                must not count twice.
            Unreachable: Whether it is acknowledged is unknown; repeat it, or let the service hand it out again.
        """
        await self._lease.ack()

    async def nack(self, reason: str | None = None) -> None:
        """Give the batch back: its groups go to the front of the queue. Safe to repeat.

        Raises:
            LeaseLost: It is not in our hands any more.
        """
        await self._lease.nack(reason)
