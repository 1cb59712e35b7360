"""Taking fragments in: put in order, put together as chunks, held back by the rate limiter."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.store.replay_entries import EncodedFragment


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a fragment.

    Attributes:
        number: Its number.
        outcome: ``stored``, ``repeated``, or why it was counted and dropped: ``late``, ``old_session``, ``stale``,
            ``future_version``, ``future_session``, ``too_large``.
        fragment_id: Its id where it is stored now, else None.
    """

    number: int
    outcome: str
    fragment_id: str | None = None


class ReplayInsertion:
    """The way in for fragments."""

    async def insert(
        self, run: str, fragments: Sequence[EncodedFragment], wait_s: float = 0.0, stop: asyncio.Event | None = None
    ) -> list[Receipt]:
        """Store fragments of one worker, all or none; once this returns they survive any crash.

        Repeating it stores nothing. Not to be cancelled while it waits: set ``stop`` instead.

        Args:
            run: The run's name.
            fragments: What to store; all of one worker and session, no number twice.
            wait_s: How long to wait for the rate limiter, seconds.
            stop: Ends the wait.

        Returns:
            What became of each.

        Raises:
            ReplayNotFound: The run has no replay buffer.
            InvalidField: They are of several workers or sessions, or two have one number.
            FragmentExists: A number names a fragment of other contents; nothing was stored.
            ReplayBlocked: The rate limiter holds inserts back; nothing was stored.
            StoreFull: Redis is out of memory; nothing was stored.
            StoreUnavailable: Redis did not answer; nothing is promised.
        """
        raise NotImplementedError
