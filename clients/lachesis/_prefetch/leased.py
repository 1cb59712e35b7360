"""Leases of batches and samples: extended in the background, and ended once."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from typing_extensions import Self

from lachesis._public import ForAsyncio, Shown
from lachesis._transport.http import Sender
from lachesis._transport.protocol import Call, LeaseCalls
from lachesis._transport.tracing import create_untraced_task
from lachesis.errors import LachesisError, LeaseLost, NotFound

_EXTEND_AT = 1 / 3  # of the lease
_GIVE_BACK_S = 5.0
_TRY_AGAIN_S = 1.0
_LOST = (LeaseLost, NotFound)


class HeldLease:
    """The lease of one batch or one sample."""

    def __init__(self, calls: LeaseCalls, lasts_s: float, sender: Sender, lease_s: float | None) -> None:
        """Start to extend the lease. Needs a running event loop.

        Args:
            calls: The requests that end and extend it.
            lasts_s: Seconds it lasts from now.
            sender: Sends them.
            lease_s: Seconds that each extension asks for. None means the setting of the run.
        """
        self._calls = calls
        self._lasts_s = lasts_s
        self._sender = sender
        self._asked_s = lease_s
        self._ended = False
        self._lost = False
        self._given_back: str | None = None
        self.nacked = False
        """Whether `nack` has ended it."""
        # A lease outlives the span of the request that took it.
        self._extending = create_untraced_task(self._keep_extending(lasts_s))

    @property
    def held(self) -> bool:
        """Whether this process holds the lease, as far as it knows."""
        return not (self._ended or self._lost)

    def ask_for(self, lease_s: float | None) -> None:
        """Ask for so many seconds with each further extension. None means the setting of the run."""
        self._asked_s = lease_s

    async def ack(self) -> None:
        """End the lease: the batch or sample was trained on."""
        self._raise_if_given_back()
        await self._end(self._calls.ack())

    async def nack(self, reason: str | None) -> None:
        """End the lease: the batch or sample goes back, if it has not."""
        if self._given_back is None:
            await self._end(self._calls.nack(reason))
        self.nacked = True

    async def extend(self, lease_s: float | None, budget_s: float | None = None) -> float:
        """Extend the lease. Return the seconds it lasts from now."""
        self._raise_if_given_back()
        try:
            reply = await self._sender.send(self._calls.extend(lease_s), budget_s)
        except _LOST:
            self._lost = True
            raise
        return self._lasts_s if reply.lease_s is None else reply.lease_s

    async def give_back(self, reason: str, why: str | None = None) -> bool:
        """End the lease like `nack`, if it is held. If the request fails, the lease expires by itself.

        Args:
            reason: The reason sent to the service.
            why: The message of a later `ack`: why it was given back, and what to do instead. None means ``reason``.

        Returns:
            False if the request failed, as it would for another lease.
        """
        held = self.held
        self.forget()
        if held:
            try:
                await self._sender.send(self._calls.nack(reason), _GIVE_BACK_S)
            except LachesisError as error:
                return isinstance(error, _LOST)
            self._given_back = why or reason
        return True

    def forget(self) -> None:
        """Stop extending the lease."""
        self._ended = True
        self._extending.cancel()

    def _raise_if_given_back(self) -> None:
        if self._given_back is not None:
            raise LeaseLost(f"it was given back: {self._given_back}")

    async def _end(self, call: Call[Any]) -> None:
        try:
            await self._sender.send(call)
        except _LOST:
            self._lost = True
            raise
        self.forget()

    async def _keep_extending(self, lease_s: float) -> None:
        """Extend it whenever a third of it has passed. If it is lost all the same, `ack` says so."""
        pause_s = lease_s * _EXTEND_AT
        while self.held:
            due_s = time.monotonic() + pause_s
            await self._sender.sleep(pause_s)
            late_s = time.monotonic() - due_s
            if late_s > lease_s * _EXTEND_AT:
                self._sender.log_late(lease_s, late_s)
            try:
                lease_s = await self.extend(self._asked_s, lease_s * (1 - _EXTEND_AT))
                pause_s = lease_s * _EXTEND_AT
            except LachesisError as error:
                pause_s = min(pause_s, _TRY_AGAIN_S)  # time stands still for leases while the service is away
                if self.held:
                    self._sender.log_trouble(error, f"The lease is extended again in {pause_s:g} s")


async def give_all_back(leases: Iterable[HeldLease], reason: str, why: str | None = None) -> None:
    """Give leases back in this order. After a request that failed, the others only end: each would wait as long."""
    answered = True
    for lease in leases:
        if answered:
            answered = await lease.give_back(reason, why)
        else:
            lease.forget()


class AsyncLeased(Shown, ForAsyncio):
    """A batch or a sample that this process holds. Its lease is extended in the background.

    As a context manager it is acknowledged at the end of the block, unless the block gave it back. It is given back if
    the block raises.
    """

    _lease: HeldLease

    @property
    def held(self) -> bool:
        """Whether this process holds the lease, as far as it knows."""
        return self._lease.held

    def _facts(self) -> dict[str, object]:
        return super()._facts() | {"held": self.held}

    async def ack(self) -> None:
        """Acknowledge the batch or sample after training on it. A repetition changes nothing.

        Raises:
            LeaseLost: The lease expired, and another trainer gets the data. Drop the result of the training step, or
                the data counts twice.
            Unreachable: The outcome is unknown. Call this method again. Until then the SDK extends the lease, so it
                does not expire. If the acknowledgement did not arrive, the data goes back when the loop ends, or when
                its trainer or buffer closes. Then the service hands it out again.
        """
        await self._lease.ack()

    async def nack(self, reason: str | None = None) -> None:
        """Give the batch or sample back without training on it. A repetition changes nothing.

        Groups of a batch go to the front of the queue. For chunks of a sample, no use is counted.

        Args:
            reason: The reason, for the log of the service.

        Raises:
            LeaseLost: This process does not hold it any more.
        """
        await self._lease.nack(reason)

    async def extend(self, lease_s: float | None = None) -> float:
        """Extend the lease. This also happens in the background.

        Args:
            lease_s: Seconds from now. None means the setting of the run.

        Returns:
            Seconds the lease lasts from now.

        Raises:
            LeaseLost: This process does not hold it any more.
        """
        return await self._lease.extend(lease_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            reason = f"{type(error).__name__}: {error}"
            # Text with half a surrogate pair, as in names of files, cannot be sent.
            await self._lease.give_back(reason.encode(errors="backslashreplace").decode())
        elif not self._lease.nacked:
            await self._lease.ack()
