"""What a batch is held under: it is extended until it is ended."""

import asyncio
import contextlib

from lachesis._http import Sender
from lachesis._protocol import Call, RunCalls
from lachesis._retry import passes
from lachesis.errors import BatchNotFound, LachesisError, LeaseLost
from lachesis.wire.batches import BatchInfo, LeaseEnd

_EXTENDED_AT = 1 / 3
_GIVING_BACK_S = 5.0
_TRIED_AGAIN_S = 1.0


class Lease:
    """A batch in our hands, as far as the service is concerned."""

    def __init__(self, info: BatchInfo, calls: RunCalls, sender: Sender, lease_s: float | None) -> None:
        """Hold a batch that was taken, from now on; needs a running event loop.

        Args:
            info: The batch.
            calls: The requests of its run.
            sender: What sends them.
            lease_s: For how long each extension asks; None: as the run says.
        """
        self._info = info
        self._calls = calls
        self._sender = sender
        self._asked_s = lease_s
        self._rank = None if info.shard is None else info.shard.rank
        self._ended = False
        self._lost = False
        self._extending = asyncio.create_task(self._keep_extending(info.lease_s))

    @property
    def held(self) -> bool:
        """Whether the batch is still in our hands, as far as is known here."""
        return not (self._ended or self._lost)

    async def ack(self) -> None:
        """End it: the batch was trained on."""
        await self._end(self._calls.ack(self._info.batch, self._info.lease, self._rank))

    async def nack(self, reason: str | None) -> None:
        """End it: the batch's groups are wanted no more here."""
        await self._end(self._calls.nack(self._info.batch, self._info.lease, reason))

    async def extend(self, lease_s: float | None, budget_s: float | None = None) -> float:
        """Hold it for longer; returns seconds from now."""
        call = self._calls.extend(self._info.batch, self._info.lease, lease_s)
        try:
            end = await self._sender.send(call, budget_s)
        except (LeaseLost, BatchNotFound):
            self._lost = True
            raise
        return self._info.lease_s if end.lease_s is None else end.lease_s

    async def give_back(self, reason: str) -> None:
        """End it like `nack`, if it is held. Should that fail, it runs out by itself: there is nobody to tell."""
        held = self.held
        self.forget()
        if held:
            call = self._calls.nack(self._info.batch, self._info.lease, reason)
            with contextlib.suppress(LachesisError):
                await self._sender.send(call, _GIVING_BACK_S)

    def forget(self) -> None:
        """Extend it no more."""
        self._ended = True
        self._extending.cancel()

    async def _end(self, call: Call[LeaseEnd]) -> None:
        try:
            await self._sender.send(call)
        except (LeaseLost, BatchNotFound):
            self._lost = True
            raise
        self.forget()

    async def _keep_extending(self, lease_s: float) -> None:
        """Extend it when a third has passed. If it is lost all the same, the service says so to `ack`."""
        pause_s = lease_s * _EXTENDED_AT
        while self.held:
            await asyncio.sleep(pause_s)
            try:
                lease_s = await self.extend(self._asked_s, lease_s * (1 - _EXTENDED_AT))
                pause_s = lease_s * _EXTENDED_AT
            except LachesisError as error:
                pause_s = min(pause_s, _TRIED_AGAIN_S)  # time stands still for leases while the service is away
                if not passes(error):
                    self._lost = True
