"""A batch in hand, for asyncio."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from lachesis._lease import Lease
from lachesis.views import Columns, GroupView
from lachesis.wire.batches import BatchInfo


class AsyncBatch(Columns):
    """A batch that this trainer holds until it is acknowledged or given back; its lease is extended meanwhile.

    As a context manager it is acknowledged at the end of the block, or given back when that raises.
    """

    def __init__(self, info: BatchInfo, groups: Sequence[GroupView], lease: Lease) -> None:
        super().__init__(info, groups)
        self._lease = lease

    @property
    def held(self) -> bool:
        """Whether it is still in our hands, as far as is known here."""
        return self._lease.held

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

    async def extend(self, lease_s: float | None = None) -> float:
        """Hold the batch for longer; this happens by itself.

        Args:
            lease_s: For how long from now; None: as the run says.

        Returns:
            Seconds the lease lasts from now.

        Raises:
            LeaseLost: It is not in our hands any more.
        """
        return await self._lease.extend(lease_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.ack()
        else:
            await self._lease.give_back(f"{type(error).__name__}: {error}")
