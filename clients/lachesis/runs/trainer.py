"""A trainer's side of a run, for asyncio."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType

from typing_extensions import Self, Unpack

from lachesis._prefetch.acquire import BatchAcquirer, Held, ShardCursor
from lachesis._prefetch.feed import Feed, close_feed
from lachesis._prefetch.leased import HeldLease, give_all_back
from lachesis._public import ForAsyncio
from lachesis._transport.bodies import checked
from lachesis._transport.events import followed
from lachesis._transport.http import OwnsSender, Sender
from lachesis._transport.logs import WaitLog
from lachesis._transport.protocol import NothingYet
from lachesis._transport.run_calls import RunCalls, Taken
from lachesis._transport.settings import Settings, settings_from
from lachesis.batches.batch import AsyncBatch, batch_of
from lachesis.curriculum.curriculum import AsyncCurriculum, NamedCurricula, raise_failures
from lachesis.errors import LachesisError
from lachesis.rank import Rank
from lachesis.runs.groups import RunGroups
from lachesis.wire.batches import BATCHES_SHOWN, BatchDetails, Explanation, LeasedBatches, ListedBatches
from lachesis.wire.events import RunEvent
from lachesis.wire.options import NewRun, RunChanges
from lachesis.wire.runs import RetentionState, Rewound, Run, RunChange, RunCreate
from lachesis.wire.status import RunStatus


class AsyncTrainer(RunGroups, OwnsSender, ForAsyncio):
    """Take batches of one run, and administer the run.

    ```
    async with AsyncTrainer() as trainer:
        async for batch in trainer.batches(prefetch=2):
            await asyncio.to_thread(step, batch.tokens_padded(pad_id=0), batch.lengths, batch.scores)
            await batch.ack()
    ```

    Use it in one event loop, with ``async with`` or `aclose`.

    Leases are extended in the background while a step runs. A step that blocks the event loop stops this, so run it in
    a thread. All methods raise `ServiceError` if the service refuses a request, and `Unreachable` if no answer comes
    within ``retry_budget_s``.
    """

    settings: Settings
    """The URL of the service, the name of the run, and the timeouts."""

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
        token: str | None = None,
        name: str | None = None,
    ) -> None:
        """Check the settings. Does not connect: ``AsyncTrainer("http://lachesis:8000", run="math")``.

        Args:
            settings: The service's URL, or all `Settings`. None means the environment variables.
            url, run, token: The URL, the run and the token. They take precedence over ``settings``.
            name: Name of the trainer, for operators.

        Raises:
            ValueError, TypeError: An argument or a variable is wrong; the message names it.
        """
        self.settings = settings_from(settings, url, run, token)
        self._calls = RunCalls(self.settings.run)
        self._sender = Sender(self.settings)
        self._curricula = NamedCurricula(self.settings, self._sender)
        self._name = name
        self._acquirer = BatchAcquirer(self._calls, self._sender, name)
        self._feeds: dict[Feed[Taken], ShardCursor | None] = {}
        self._closing = asyncio.Lock()  # asyncio closes, in the background, a loop that was left
        self._taken: set[HeldLease] = set()
        self._wait_log = WaitLog(f"run {self.settings.run}", "batch", self._why)

    async def create_run(self, batch_size: int, **settings: Unpack[NewRun]) -> Run:
        """Create the run. A run that exists with these settings stays as it is.

        Args:
            batch_size: Sequences in each batch, exactly, ``>= 1``.
            settings: See `lachesis.wire.runs.RunCreate`.

        Raises:
            InvalidField: A setting is wrong or unknown.
            RunExists: The run exists, and one of these settings differs. Settings that you leave out are not compared.
        """
        new = checked(RunCreate, name=self.settings.run, batch_size=batch_size, **settings)
        return await self._sender.send(self._calls.create(new))

    async def run(self) -> Run:
        """Return the run: its settings, step and policy version.

        Raises:
            RunNotFound: The run does not exist.
        """
        return await self._sender.send(self._calls.show())

    async def change_run(self, **changes: Unpack[RunChanges]) -> Run:
        """Change settings of the run while it runs. Settings that you leave out stay.

        Args:
            changes: New values of the settings of `create_run`, except ``atropos``.

        Raises:
            InvalidField: A setting is wrong or unknown.
        """
        return await self._sender.send(self._calls.change(checked(RunChange, **changes)))

    async def delete_run(self) -> None:
        """Delete the run with its groups, batches, environments, replay buffer and curricula."""
        await self._sender.send(self._calls.delete())
        self._acquirer.start(None)

    async def status(self) -> RunStatus:
        """Return the status of the run, for operators."""
        return await self._sender.send(self._calls.status())

    async def explain(self) -> Explanation:
        """Return whether a batch would form now, and why not."""
        return await self._sender.send(self._calls.explain())

    async def events(self, after: str | None = None) -> AsyncGenerator[RunEvent, None]:
        """Follow what happens in the run. The iterator connects again if the connection breaks, and gets every
        event that the run still has.

        It ends after the event ``run deleted``, or without it if the run was deleted while the connection was broken.
        An event ``gap`` says that older events are no longer kept.

        Args:
            after: Begin after this event, by its id, or after a time in milliseconds since 1970. ``"0"`` means all
                events that are kept. None means from now on.

        Raises:
            RunNotFound: The run does not exist.
            InvalidField: ``after`` is not the id of an event.
        """
        async with aclosing(followed(self._sender, self._calls, after)) as events:
            async for event in events:
                yield event

    async def leased_batches(self) -> LeasedBatches:
        """Return the batches that are held, returned (to be handed out again) or quarantined."""
        return await self._sender.send(self._calls.leased())

    async def list_batches(
        self,
        *,
        from_s: float | None = None,
        to_s: float | None = None,
        limit: int = BATCHES_SHOWN,
        cursor: str | None = None,
    ) -> ListedBatches:
        """Return a page of the latest 128 batches, newest first: what they consist of, and their state.

        Args:
            from_s: Only batches formed at this time or later, seconds since 1970.
            to_s: Only batches formed before this time.
            limit: Maximum number of batches on the page, 1 to 128.
            cursor: The ``cursor`` of the page before.
        """
        given = {"from": from_s, "to": to_s, "limit": limit, "cursor": cursor}
        return await self._sender.send(self._calls.list_batches(given))

    async def find_batch(self, batch: str) -> BatchDetails:
        """Return one of the latest batches, and its groups while it is leased or kept.

        Raises:
            BatchNotFound: The run does not know it.
        """
        return await self._sender.send(self._calls.find_batch(batch))

    async def release_quarantined(self, batch: str) -> None:
        """Put the groups of a quarantined ``batch`` back into the queue.

        Raises:
            LeaseLost: The batch is not quarantined. A trainer holds it.
        """
        await self._sender.send(self._calls.lease(batch, None).nack(None))

    async def drop_quarantined(self, batch: str) -> None:
        """Drop a quarantined ``batch`` and its groups.

        Raises:
            BatchInUse: The batch is not quarantined.
        """
        await self._sender.send(self._calls.discard(batch))

    async def set_policy_version(self, version: int) -> int:
        """Report ``version``, the number of weight updates so far. Call it after each update, or after some of them.

        The trainer gives back prefetched batches with groups that are too old now, and takes others. Batches that are
        divided between ranks stay, because all ranks must train on the same batch.

        Returns:
            The number of waiting groups that the run dropped as too old. Above 1,000, the run drops the rest later.

        Raises:
            RunRewound: Another trainer rewound the run after this trainer started. Nothing has changed.
        """
        call = self._calls.set_policy_version(version, self._acquirer.rewinds)
        with self._acquirer.noting_refusal():
            answer = await self._sender.send(call)
        whole = [feed for feed, cursor in self._feeds.items() if cursor is None]
        if whole and (limit := (await self.run()).max_staleness) is not None:
            for feed in whole:
                await feed.drop_stale(version, limit)
        return answer.dropped_groups

    async def checkpoint(self, step: int, policy_version: int | None = None) -> RetentionState:
        """Report that the trainer has saved its state after ``step``. The run then releases the batches up to it.

        Args:
            step: Step of the last batch in the saved state.
            policy_version: The policy version of this state. `rewind` restores it. None means the current version.

        Raises:
            RunRewound: Another trainer rewound the run after this trainer started. Nothing has changed.
        """
        call = self._calls.checkpoint(step, policy_version, self._acquirer.rewinds)
        with self._acquirer.noting_refusal():
            return await self._sender.send(call)

    async def rewind(self, step: int) -> Rewound:
        """Go back to the state that was saved after ``step``. The run hands out the later batches again, in order.

        Limits of age and staleness do not apply to these batches, and a batch that is given back stays whole. They
        include later batches that this trainer holds or has prefetched. If another process still trains, its leases
        are lost, and it gets `RunRewound` with its next request for a batch. In a trainer of several ranks, one rank
        calls this method before the others start their loops.

        Returns:
            The batches, the quarantined batches that are left out, and the ``policy_version`` from now on.

        Raises:
            RewindImpossible: The run no longer keeps all later batches.
        """
        feeds = dict(self._feeds)
        try:
            for feed in feeds:
                await feed.pause()
            rewound = await self._sender.send(self._calls.rewind(step, str(uuid.uuid4())))
            self._acquirer.start(rewound.rewinds)
            for feed, cursor in feeds.items():
                feed.forget()
                if cursor is not None:
                    cursor.after = None
        finally:
            for feed in feeds:
                feed.resume()
        return rewound

    def curriculum(self, name: str) -> AsyncCurriculum:
        """Return the run's curriculum with this ``name``, over these connections. You can create it later."""
        return self._curricula.named(name)

    async def take(
        self, wait_s: float = 0.0, lease_s: float | None = None, rank: Rank | None = None
    ) -> AsyncBatch | None:
        """Take the next batch. Training loops usually use `batches`.

        Args:
            wait_s: Maximum time to wait for a batch, seconds. 0 does not wait.
            lease_s: Seconds of the lease and of each extension. None means the setting of the run.
            rank: Take this rank's shard of the oldest batch that it has not acknowledged.

        Returns:
            The batch, or None if no batch formed in time.

        Raises:
            InvalidField: A time is out of its range.
            RunNotFound, RunArchived: The run hands out no batches.
            RunRewound: Another trainer rewound the run after this trainer started.
            RanksDisagree: Other ranks asked for another division of the batch.
        """
        self._acquirer.begin()
        with self._wait_log.watching(), self._acquirer.noting_refusal():
            if rank is None:
                held = await self._acquirer.take(wait_s, lease_s)
            else:
                held = await self._acquirer.take_shard(ShardCursor(rank), wait_s, lease_s)
        if isinstance(held, NothingYet):
            return None
        self._taken = {held.lease, *(lease for lease in self._taken if lease.held)}
        return batch_of(held)

    async def batches(
        self,
        prefetch: int = 1,
        wait_s: float | None = None,
        lease_s: float | None = None,
        rank: Rank | None = None,
    ) -> AsyncGenerator[AsyncBatch, None]:
        """Take batches, and prefetch some. Acknowledge each batch after training on it.

        When the loop ends, the trainer gives back batches that are not acknowledged. After an early end, asyncio closes
        the iterator later. `contextlib.aclosing` closes it at once.

        Args:
            prefetch: Batches to keep ready in addition to the current one, ``>= 0``.
            wait_s: Maximum time to wait for the next one, seconds, ``> 0``. None means no limit.
            lease_s: Seconds of a lease; it is extended in the background. None means the setting of the run.
            rank: Take this rank's shard of each batch. Every rank of the trainer runs such a loop, without a
                broadcast. A batch ends when all ranks have acknowledged their shards. If one rank gives its shard back,
                the batch goes back for all ranks. A new loop of a rank first closes an earlier one of this trainer.

        Raises:
            NoBatch: No batch came within ``wait_s``. The message says what was missing.
            InvalidField: A value is out of its range.
            RunNotFound, RunArchived: The run hands out no batches.
            RunRewound: Another trainer rewound the run after this trainer started.
            RanksDisagree: Other ranks asked for another division of the batch.
            StepMismatch: The run was created again after the loops of its ranks began. Begin all of them again.
        """
        feed = self._open_feed(prefetch, wait_s, lease_s, rank)
        try:
            await self._close_earlier_loops(feed)
            with self._acquirer.noting_refusal():
                async for held in feed:
                    yield batch_of(held)
                    del held  # or it would stay in memory until the next one is there
        finally:
            await self._close_feed(feed)

    async def aclose(self) -> None:
        """Give back batches that are not acknowledged, and close all connections. A repetition changes nothing.

        Loops of other tasks end. If this method is interrupted, the service gets the remaining batches back when
        their leases expire.
        """
        raise_failures(await self._end(), None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise_failures(await self._end(), error)

    async def _end(self) -> list[LachesisError]:
        """Close it. Return the errors of observations that did not arrive."""
        try:
            for feed in list(self._feeds):
                await self._close_feed(feed)
            await give_all_back(self._taken, "the trainer closed", "its trainer was closed before ack()")
            await self._acquirer.give_back_unanswered()
            return await self._curricula.closed()
        finally:
            for feed in self._feeds:
                feed.abandon()
            for lease in self._taken:
                lease.forget()
            await self._sender.aclose()

    def _facts(self) -> dict[str, object]:
        held = sum(lease.held for lease in self._taken) + sum(feed.held for feed in list(self._feeds))
        return {"name": self._name, **self.settings.facts(), "batches_held": held}

    def _open_feed(self, prefetch: int, wait_s: float | None, lease_s: float | None, rank: Rank | None) -> Feed[Taken]:
        self._acquirer.begin()
        cursor = None if rank is None else ShardCursor(rank)

        async def take(poll_s: float) -> Held[Taken] | NothingYet:
            if cursor is None:
                return await self._acquirer.take_next(poll_s, lease_s)
            return await self._acquirer.take_shard(cursor, poll_s, lease_s)

        where, divided, hint = f"run {self.settings.run}", rank is not None, ", or take one without a loop with take()"
        feed = Feed(take, prefetch, wait_s, where, "batch", hint, self._explained, Taken.is_stale, divided=divided)
        self._feeds[feed] = cursor
        return feed

    async def _explained(self) -> str | None:
        """Return why there is no batch. None means that there is a batch."""
        try:
            explained = await self._sender.send(self._calls.explain(), 0.0)
        except LachesisError as error:
            return str(error)
        return None if explained.ready else f"{explained.reason}: {explained.detail}"

    async def _why(self) -> str:
        return await self._explained() or "a batch is ready and is being sent"

    async def _close_earlier_loops(self, feed: Feed[Taken]) -> None:
        """Close the other open loops of its rank, such as one that asyncio closes later.

        This loop would get the shards that they hold. When they then give these back, all ranks lose the batches.
        """
        cursor = self._feeds[feed]
        if cursor is None:
            return
        for other, its in list(self._feeds.items()):
            if other is not feed and its is not None and its.rank.rank == cursor.rank.rank:
                await self._close_feed(other)

    async def _close_feed(self, feed: Feed[Taken]) -> None:
        await close_feed(feed, self._acquirer, self._closing)
        self._feeds.pop(feed, None)
