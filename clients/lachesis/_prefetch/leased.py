"""What a batch or a sample is held under: it is extended until it is ended."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lachesis._public import in_background
from lachesis._transport.http import Sender
from lachesis._transport.protocol import Call
from lachesis._transport.retry import passes
from lachesis.errors import BatchNotFound, LachesisError, LeaseLost, SampleNotFound

_EXTENDED_AT = 1 / 3
_GIVING_BACK_S = 5.0
_TRIED_AGAIN_S = 1.0
_LOST = (LeaseLost, BatchNotFound, SampleNotFound)


@dataclass(frozen=True, slots=True)
class Ends:
    """The requests that end a lease, or make it longer; the answer to the last says for how many seconds."""

    ack: Callable[[], Call[Any]]
    nack: Callable[[str | None], Call[Any]]
    extend: Callable[[float | None], Call[Any]]


class Lease:
    """A batch or sample in our hands, as far as the service is concerned."""

    def __init__(self, ends: Ends, lasts_s: float, sender: Sender, lease_s: float | None) -> None:
        """Hold what was taken, from now on; needs a running event loop.

        Args:
            ends: The requests that end it.
            lasts_s: How long it lasts from now, seconds.
            sender: What sends them.
            lease_s: For how long each extension asks; None: as the run says.
        """
        self._ends = ends
        self._lasts_s = lasts_s
        self._sender = sender
        self._asked_s = lease_s
        self._ended = False
        self._lost = False
        self._given_back: str | None = None
        self._extending = in_background(self._keep_extending(lasts_s))

    @property
    def held(self) -> bool:
        """Whether it is still in our hands, as far as is known here."""
        return not (self._ended or self._lost)

    async def ack(self) -> None:
        """End it: it was trained on."""
        self._refuse_if_given_back()
        await self._end(self._ends.ack())

    async def nack(self, reason: str | None) -> None:
        """End it: it is wanted no more here."""
        await self._end(self._ends.nack(reason))

    async def extend(self, lease_s: float | None, budget_s: float | None = None) -> float:
        """Hold it for longer; returns seconds from now."""
        self._refuse_if_given_back()
        try:
            end = await self._sender.send(self._ends.extend(lease_s), budget_s)
        except _LOST:
            self._lost = True
            raise
        lasts_s: float = self._lasts_s if end.lease_s is None else end.lease_s
        return lasts_s

    async def give_back(self, reason: str, why: str | None = None) -> None:
        """End it like `nack`, if it is held. If the request fails, the lease runs out by itself.

        Args:
            reason: The reason sent to the service.
            why: The message of a later `ack`: why it was given back, and what to do instead. None: ``reason``.
        """
        held = self.held
        self.forget()
        if held:
            with contextlib.suppress(LachesisError):
                await self._sender.send(self._ends.nack(reason), _GIVING_BACK_S)
                self._given_back = why or reason

    def forget(self) -> None:
        """Extend it no more."""
        self._ended = True
        self._extending.cancel()

    def _refuse_if_given_back(self) -> None:
        if self._given_back is not None:
            raise LeaseLost(f"it was given back: {self._given_back}", status=409, code="lease_lost")

    async def _end(self, call: Call[Any]) -> None:
        try:
            await self._sender.send(call)
        except _LOST:
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
