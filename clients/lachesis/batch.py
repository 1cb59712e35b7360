"""A batch in hand: its columns, and the lease it is held under."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from lachesis._http import Sender
from lachesis._protocol import Call, RunCalls, Taken
from lachesis._retry import passes
from lachesis.errors import BatchNotFound, LachesisError, LeaseLost
from lachesis.views import Columns
from lachesis.wire.batches import LeaseEnd

_EXTENDED_AT = 1 / 3
_GIVING_BACK_S = 5.0


class AsyncBatch(Columns):
    """A batch that this trainer holds, until it is acknowledged or given back; its lease is extended meanwhile.

    As a context manager it is acknowledged at the end of the block, or given back when that raises.
    """

    def __init__(self, taken: Taken, calls: RunCalls, sender: Sender, lease_s: float | None) -> None:
        """Hold a batch that was taken.

        Args:
            taken: The batch.
            calls: The requests of its run.
            sender: What sends them.
            lease_s: For how long each extension asks; None: as the run says.
        """
        super().__init__(taken.info, taken.groups)
        self._calls = calls
        self._sender = sender
        self._asked_s = lease_s
        self._ended = False
        self._lost: LachesisError | None = None
        self._extending = asyncio.create_task(self._extend_again_and_again(taken.info.lease_s))

    @property
    def held(self) -> bool:
        """Whether it is still in our hands, as far as is known here."""
        return not self._ended and self._lost is None

    async def ack(self) -> None:
        """End the batch: it was trained on. Safe to repeat.

        Raises:
            LeaseLost: The lease ran out and the batch was, or will be, handed out again: what was made of it here
                must not count twice.
            Unreachable: Whether it is acknowledged is unknown; repeat it, or let the service hand it out again.
        """
        await self._end(self._calls.ack(self.info.batch, self.info.lease))

    async def nack(self, reason: str | None = None) -> None:
        """Give the batch back: its groups go to the front of the queue, to be handed out again. Safe to repeat.

        Raises:
            LeaseLost: It is not in our hands any more.
        """
        await self._end(self._calls.nack(self.info.batch, self.info.lease, reason))

    async def extend(self, lease_s: float | None = None) -> float:
        """Hold the batch for longer; this happens by itself.

        Args:
            lease_s: For how long from now; None: as the run says.

        Returns:
            Seconds the lease lasts from now.

        Raises:
            LeaseLost: It is not in our hands any more.
        """
        try:
            return await self._extend(lease_s, None)
        except (LeaseLost, BatchNotFound) as error:
            self._lost = error
            raise

    async def give_back(self, reason: str) -> None:
        """Give the batch back if it is held; when that fails, its lease runs out by itself."""
        held, self._ended = self.held, True
        self._extending.cancel()
        if held:
            call = self._calls.nack(self.info.batch, self.info.lease, reason)
            with contextlib.suppress(LachesisError):
                await self._sender.send(call, _GIVING_BACK_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.ack()
        else:
            await self.give_back(describe(error))

    async def _end(self, call: Call[LeaseEnd]) -> None:
        if self._lost is not None:
            raise self._lost
        await self._sender.send(call)
        self._ended = True
        self._extending.cancel()

    async def _extend(self, lease_s: float | None, budget_s: float | None) -> float:
        call = self._calls.extend(self.info.batch, self.info.lease, lease_s)
        end = await self._sender.send(call, budget_s)
        return self.info.lease_s if end.lease_s is None else end.lease_s

    async def _extend_again_and_again(self, lease_s: float) -> None:
        while True:
            await asyncio.sleep(lease_s * _EXTENDED_AT)
            try:
                lease_s = await self._extend(self._asked_s, lease_s * (1 - _EXTENDED_AT))
            except LachesisError as error:
                if not passes(error):
                    self._lost = error  # raised when the batch is acknowledged
                    return


def describe(error: BaseException) -> str:
    """Say why a batch is given back, in a line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
