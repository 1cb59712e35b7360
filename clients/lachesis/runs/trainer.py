"""A trainer's side of a run, for asyncio."""

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Literal

from typing_extensions import Self, Unpack

from lachesis._prefetch.acquire import BatchAcquirer, Held, ShardCursor
from lachesis._prefetch.feed import Feed
from lachesis._prefetch.leased import Lease
from lachesis._public import ForAsyncio
from lachesis._transport.bodies import checked
from lachesis._transport.http import OwnsSender, Sender
from lachesis._transport.logs import WaitLog
from lachesis._transport.protocol import NothingYet
from lachesis._transport.run_calls import RunCalls, Taken
from lachesis._transport.settings import Settings, settings_from
from lachesis.batches.batch import AsyncBatch
from lachesis.curriculum.curriculum import AsyncCurriculum, Curricula, raise_failures
from lachesis.errors import LachesisError
from lachesis.rank import Rank
from lachesis.wire.batches import Explanation, LeasedBatches
from lachesis.wire.groups import Lineage
from lachesis.wire.options import NewRun, RunChanges
from lachesis.wire.runs import (
    RetentionState,
    Rewound,
    Run,
    RunChange,
    RunCreate,
)
from lachesis.wire.status import RunStatus


class AsyncTrainer(OwnsSender, ForAsyncio):
    """Take batches of one run, and administer the run.

    ```
    async with AsyncTrainer() as trainer:
        async for batch in trainer.batches(prefetch=2):
            step(batch.tokens_padded(pad_id=0), batch.lengths, batch.scores)
            await batch.ack()
    ```

    Use it in one event loop, with ``async with`` or `aclose`.

    Leases are extended in the background while a step runs. All methods raise `ServiceError` if the service refuses a
    request, and `Unreachable` if no answer comes within ``retry_budget_s``.
    """

    settings: Settings
    """Where the service is, and which run is meant."""

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
        name: str | None = None,
    ) -> None:
        """Check the settings. Does not connect: ``AsyncTrainer("http://lachesis:8000", run="math")``.

        Args:
            settings: The service's URL, or all `Settings`. None: read the environment variables.
            url, run: The same by name; they take precedence.
            name: What operators see beside the batches it holds.

        Raises:
            ValueError, TypeError: An argument or a variable is wrong; the message names it.
        """
        self.settings = settings_from(settings, url, run)
        self._calls = RunCalls(self.settings.run)
        self._sender = Sender(self.settings)
        self._curricula = Curricula(self.settings, self._sender)
        self._name = name
        self._acquirer = BatchAcquirer(self._calls, self._sender, name)
        self._feeds: dict[Feed[Taken], ShardCursor | None] = {}
        self._taken: set[Lease] = set()
        self._wait_log = WaitLog(f"run {self.settings.run}", "batch", self._why)

    async def create_run(self, batch_size: int, **settings: Unpack[NewRun]) -> Run:
        """Create the run. If it exists with these settings, nothing changes.

        Args:
            batch_size: Sequences in each batch, exactly, ``>= 1``.
            settings: See `lachesis.wire.runs.RunCreate`.

        Raises:
            InvalidField: A setting is wrong or unknown.
            RunExists: It exists with other settings than these. Settings that are not named here do not count.
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
        """Change settings of the run while it runs. Settings that are not named stay.

        Args:
            changes: New values of what `create_run` took, or ``archived``.

        Raises:
            InvalidField: A setting is wrong or unknown.
        """
        return await self._sender.send(self._calls.change(checked(RunChange, **changes)))

    async def delete_run(self) -> None:
        """Delete the run and everything it owns."""
        await self._sender.send(self._calls.delete())
        self._acquirer.rewinds = None

    async def status(self) -> RunStatus:
        """Return the status of the run, for operators."""
        return await self._sender.send(self._calls.status())

    async def explain(self) -> Explanation:
        """Return whether a batch would form now, and why not."""
        return await self._sender.send(self._calls.explain())

    async def leased_batches(self) -> LeasedBatches:
        """Return the batches that trainers hold, that wait to be handed out again, or that are quarantined."""
        return await self._sender.send(self._calls.leased())

    async def release_quarantined(self, batch: str) -> None:
        """Put the groups of a quarantined ``batch`` back into the queue.

        Raises:
            LeaseLost: It is not quarantined: a trainer holds it.
        """
        await self._sender.send(self._calls.lease(batch, None).nack(None))

    async def drop_quarantined(self, batch: str) -> None:
        """Drop a quarantined ``batch`` and its groups.

        Raises:
            BatchInUse: It is not quarantined.
        """
        await self._sender.send(self._calls.discard(batch))

    async def find_group(self, group: str) -> Lineage:
        """Return where the ``group`` with this id is, and what happened to it.

        Raises:
            GroupNotFound: The run does not know it.
        """
        return await self._sender.send(self._calls.find_group(group))

    async def delete_group(self, group: str) -> None:
        """Delete the waiting ``group`` with this id. Safe to repeat.

        Raises:
            GroupNotFound: The run does not know it.
            GroupNotWaiting: It is in a batch, or has left the queue.
        """
        await self._sender.send(self._calls.delete_group(group))

    async def delete_groups(
        self,
        *,
        environment: int | Literal["none"] | None = None,
        size: int | None = None,
        older_than_version: int | None = None,
    ) -> int:
        """Delete all waiting groups that match every given criterion. At least one is required.

        Args:
            environment: Id of their environment. ``"none"``: groups without an environment.
            size: Number of their sequences.
            older_than_version: Matches groups sampled by a policy version below this one.

        Returns:
            How many groups were deleted. The count is too low if an answer was lost.

        Raises:
            InvalidField: No criterion is given, or one is wrong.
        """
        given = {"environment": environment, "size": size, "older_than_version": older_than_version}
        query = {name: str(value) for name, value in given.items() if value is not None}
        deleted = 0
        cursor: dict[str, str] = {}
        while True:
            answer = await self._sender.send(self._calls.delete_groups(query | cursor))
            deleted += answer.deleted_groups
            if answer.cursor is None:
                return deleted
            cursor = {"cursor": answer.cursor}

    async def set_policy_version(self, version: int) -> int:
        """Report how many weight updates there were: ``version``. Call it after each, or after some of them.

        Prefetched batches with groups that are too old now are given back and replaced. Batches that are sharded
        between ranks stay, because all ranks must train on the same ones.

        Returns:
            Queued groups that were dropped because of their version.

        Raises:
            RunRewound: Another trainer rewound the run after this one started; nothing has changed.
        """
        call = self._calls.set_policy_version(version, self._acquirer.rewinds)
        answer = await self._acquirer.fenced(self._sender.send(call))
        whole = [feed for feed, cursor in self._feeds.items() if cursor is None]
        if whole and (limit := (await self.run()).max_staleness) is not None:
            for feed in whole:
                await feed.drop_stale(version, limit)
        return answer.dropped_groups

    async def checkpoint(self, step: int, policy_version: int | None = None) -> RetentionState:
        """Report that the trainer's state after ``step`` was saved. Batches up to it are not needed again.

        Args:
            step: Step of the last batch in that state.
            policy_version: The policy version of that state, which `rewind` restores. None: the current one.

        Raises:
            RunRewound: Another trainer rewound the run after this one started; nothing has changed.
        """
        call = self._calls.checkpoint(step, policy_version, self._acquirer.rewinds)
        return await self._acquirer.fenced(self._sender.send(call))

    async def rewind(self, step: int) -> Rewound:
        """Go back to the state that was saved after ``step``. The batches since then are handed out again, in order.

        They come whatever their age, and stay whole if they are given back. Batches of later steps that this trainer
        holds or has prefetched are among them. A trainer that still runs in another process cannot end any of them; it
        gets `RunRewound` when it takes more. If a trainer has several ranks, one of them calls this before the others
        start their loops.

        Returns:
            The batches, the quarantined ones that are left out, and ``policy_version``: the one stored with the
            checkpoint, which is in force again.

        Raises:
            RewindImpossible: The batches since then are not kept.
        """
        feeds = dict(self._feeds)
        for feed in feeds:
            await feed.pause()
        try:
            rewound = await self._sender.send(self._calls.rewind(step))
            self._acquirer.rewinds = rewound.rewinds
            for feed, cursor in feeds.items():
                feed.forget()
                if cursor is not None:
                    cursor.after = None
        finally:
            for feed in feeds:
                feed.start()
        return rewound

    def curriculum(self, name: str) -> AsyncCurriculum:
        """Return the run's curriculum with this ``name``, over these connections. It need not exist yet."""
        return self._curricula.named(name)

    async def take(
        self, wait_s: float = 0.0, lease_s: float | None = None, rank: Rank | None = None
    ) -> AsyncBatch | None:
        """Take the next batch. `batches` is the usual way to do so.

        Args:
            wait_s: How long to wait for one, 0 to 600.
            lease_s: Seconds of the lease and of each extension. None: the setting of the run.
            rank: Take this rank's shard of the oldest batch that it has not acknowledged.

        Returns:
            The batch, or None if there was none in time.

        Raises:
            InvalidField: A time is out of its range.
            RunNotFound, RunArchived: The run hands out no batches.
            RunRewound: Another trainer rewound the run after this one started.
            RanksDisagree: Other ranks that have the batch shard it in another way.
        """
        self._acquirer.begin()
        with self._wait_log.watching():
            if rank is None:
                held = await self._acquirer.take(wait_s, lease_s)
            else:
                held = await self._acquirer.take_shard(ShardCursor(rank), wait_s, lease_s)
        if isinstance(held, NothingYet):
            return None
        self._taken = {held.lease, *(lease for lease in self._taken if lease.held)}
        return _batch(held)

    async def batches(
        self,
        prefetch: int = 1,
        wait_s: float | None = None,
        lease_s: float | None = None,
        rank: Rank | None = None,
    ) -> AsyncGenerator[AsyncBatch, None]:
        """Take batch after batch, some ahead. Acknowledge each after training on it.

        When the loop is left, batches that are not acknowledged are given back. asyncio closes an iterator that was
        left early only later; `contextlib.aclosing` closes it at once.

        Args:
            prefetch: Batches to keep ready in addition to the current one.
            wait_s: How long to wait for the next one. None: forever.
            lease_s: Seconds of a lease; it is extended in the background. None: the setting of the run.
            rank: Take this rank's shard of each batch. Every rank of the trainer runs such a loop; no broadcast is
                needed. A batch ends when all ranks have acknowledged their shards. One rank that gives up gives up for
                all.

        Raises:
            NoBatch: None came within ``wait_s``; the message says what was missing.
            RunNotFound, RunArchived: The run hands out no batches.
            RunRewound: Another trainer rewound the run after this one started.
            RanksDisagree: Other ranks that have the batch shard it in another way.
        """
        if prefetch < 0:
            raise ValueError(f"prefetch: should be 0 or more, not {prefetch}")
        feed = self._open_feed(prefetch, wait_s, lease_s, rank)
        try:
            while True:
                yield _batch(await feed.next())
        finally:
            await self._close_feed(feed)

    async def aclose(self) -> None:
        """Give back batches that are not acknowledged, and close all connections. Safe to repeat."""
        for feed in list(self._feeds):
            await self._close_feed(feed)
        for lease in self._taken:
            await lease.give_back("the trainer closed", "its trainer was closed before ack()")
        await self._acquirer.give_back_unanswered()
        failures = await self._curricula.closed()
        await self._sender.aclose()
        raise_failures(failures, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _facts(self) -> dict[str, object]:
        held = sum(lease.held for lease in self._taken) + sum(feed.held for feed in self._feeds)
        return {"name": self._name, **self.settings.facts(), "batches_held": held}

    def _open_feed(self, prefetch: int, wait_s: float | None, lease_s: float | None, rank: Rank | None) -> Feed[Taken]:
        self._acquirer.begin()
        cursor = None if rank is None else ShardCursor(rank)

        async def take(poll_s: float) -> Held[Taken] | NothingYet:
            if cursor is None:
                return await self._acquirer.take_next(poll_s, lease_s)
            return await self._acquirer.take_shard(cursor, poll_s, lease_s)

        where, instead = f"run {self.settings.run}", ", or take one without a loop with take()"
        feed = Feed(take, prefetch, wait_s, where, "batch", instead, self._explained, Taken.is_stale)
        self._feeds[feed] = cursor
        return feed

    async def _explained(self) -> str | None:
        """Return why there is no batch. None: there is one."""
        try:
            explained = await self._sender.send(self._calls.explain(), 0.0)
        except LachesisError as error:
            return str(error)
        return None if explained.ready else f"{explained.reason}: {explained.detail}"

    async def _why(self) -> str:
        return await self._explained() or "a batch is ready and is being sent"

    async def _close_feed(self, feed: Feed[Taken]) -> None:
        await feed.aclose()
        self._feeds.pop(feed, None)
        await self._acquirer.give_back_unanswered()


def _batch(held: Held[Taken]) -> AsyncBatch:
    return AsyncBatch(held.taken.info, held.taken.file, held.lease)
