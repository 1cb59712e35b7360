"""What batches and samples have in common while a trainer holds them: a lease, and a block at whose end it ends."""

from types import TracebackType

from typing_extensions import Self

from lachesis._prefetch.leased import Lease
from lachesis._public import ForAsyncio, ForThreads
from lachesis._transport.bridge import Portal


class AsyncInHand(ForAsyncio):
    """Held under a lease, which is extended meanwhile."""

    _lease: Lease

    @property
    def held(self) -> bool:
        """Whether it is still in our hands, as far as is known here."""
        return self._lease.held

    async def extend(self, lease_s: float | None = None) -> float:
        """Hold it for longer; this happens by itself.

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
            await self._lease.ack()
        else:
            await self._lease.give_back(f"{type(error).__name__}: {error}")


class InHand(ForThreads):
    """The same for callers without an event loop."""

    _async: AsyncInHand
    _portal: Portal

    @property
    def held(self) -> bool:
        """Whether it is still in our hands, as far as is known here."""
        return self._async.held

    def extend(self, lease_s: float | None = None) -> float:
        """Hold it for longer; this happens by itself.

        Args:
            lease_s: For how long from now; None: as the run says.

        Returns:
            Seconds the lease lasts from now.

        Raises:
            LeaseLost: It is not in our hands any more.
        """
        return self._portal.run(self._async.extend(lease_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.run(self._async.__aexit__(kind, error, trace))
