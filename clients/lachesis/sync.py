"""Trainers and environments for code without an event loop: theirs runs in a thread beside it."""

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from types import TracebackType
from typing import Self, Unpack

from lachesis._portal import Portal
from lachesis._settings import Settings
from lachesis.batch import AsyncBatch
from lachesis.environment import Environment, EnvironmentOptions
from lachesis.errors import LachesisError
from lachesis.group import Group
from lachesis.trainer import AsyncTrainer, NewRun, RunChanges
from lachesis.views import Columns
from lachesis.wire.batches import Explanation, LeasedBatches
from lachesis.wire.environments import Credits
from lachesis.wire.groups import GroupOutcome, Lineage
from lachesis.wire.runs import Bookmarks, Rewound, Run
from lachesis.wire.status import RunStatus


class Batch(Columns):
    """A batch that this trainer holds; see `lachesis.AsyncBatch`, whose methods wait here."""

    def __init__(self, batch: AsyncBatch, portal: Portal) -> None:
        super().__init__(batch.info, batch.groups)
        self._async = batch
        self._portal = portal

    @property
    def held(self) -> bool:
        """See `AsyncBatch.held`."""
        return self._async.held

    def ack(self) -> None:
        """See `AsyncBatch.ack`."""
        self._portal.run(self._async.ack())

    def nack(self, reason: str | None = None) -> None:
        """See `AsyncBatch.nack`."""
        self._portal.run(self._async.nack(reason))

    def extend(self, lease_s: float | None = None) -> float:
        """See `AsyncBatch.extend`."""
        return self._portal.run(self._async.extend(lease_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.run(self._async.__aexit__(kind, error, trace))


class Trainer:
    """Takes batches of one run, and administers it; see `lachesis.AsyncTrainer`, whose methods wait here.

    ```
    with Trainer() as trainer:
        for batch in trainer.batches(prefetch=2):
            step(batch.tokens_padded(pad_id=0), batch.lengths, batch.scores)
            batch.ack()
    ```

    Leases are extended in a thread of its own while a step runs. It does not survive a fork: make it in the process
    that uses it.
    """

    def __init__(self, settings: Settings | None = None, *, name: str | None = None) -> None:
        """See `AsyncTrainer`."""
        self._async = AsyncTrainer(settings, name=name)
        self._portal = Portal()

    @property
    def settings(self) -> Settings:
        """Where the service is and which run is meant."""
        return self._async.settings

    def create_run(self, batch_size: int, **settings: Unpack[NewRun]) -> Run:
        """See `AsyncTrainer.create_run`."""
        return self._portal.run(self._async.create_run(batch_size, **settings))

    def run(self) -> Run:
        """See `AsyncTrainer.run`."""
        return self._portal.run(self._async.run())

    def change_run(self, **changes: Unpack[RunChanges]) -> Run:
        """See `AsyncTrainer.change_run`."""
        return self._portal.run(self._async.change_run(**changes))

    def delete_run(self) -> None:
        """See `AsyncTrainer.delete_run`."""
        self._portal.run(self._async.delete_run())

    def status(self) -> RunStatus:
        """See `AsyncTrainer.status`."""
        return self._portal.run(self._async.status())

    def explain(self) -> Explanation:
        """See `AsyncTrainer.explain`."""
        return self._portal.run(self._async.explain())

    def leased_batches(self) -> LeasedBatches:
        """See `AsyncTrainer.leased_batches`."""
        return self._portal.run(self._async.leased_batches())

    def release_quarantined(self, batch: str) -> None:
        """See `AsyncTrainer.release_quarantined`."""
        self._portal.run(self._async.release_quarantined(batch))

    def drop_quarantined(self, batch: str) -> None:
        """See `AsyncTrainer.drop_quarantined`."""
        self._portal.run(self._async.drop_quarantined(batch))

    def find_group(self, group: str) -> Lineage:
        """See `AsyncTrainer.find_group`."""
        return self._portal.run(self._async.find_group(group))

    def set_policy_version(self, version: int) -> int:
        """See `AsyncTrainer.set_policy_version`."""
        return self._portal.run(self._async.set_policy_version(version))

    def checkpoint(self, step: int) -> Bookmarks:
        """See `AsyncTrainer.checkpoint`."""
        return self._portal.run(self._async.checkpoint(step))

    def rewind(self, step: int) -> Rewound:
        """See `AsyncTrainer.rewind`."""
        return self._portal.run(self._async.rewind(step))

    def take(self, wait_s: float = 0.0, lease_s: float | None = None) -> Batch | None:
        """See `AsyncTrainer.take`."""
        taken = self._portal.run(self._async.take(wait_s, lease_s))
        return None if taken is None else Batch(taken, self._portal)

    def batches(self, prefetch: int = 1, wait_s: float | None = None, lease_s: float | None = None) -> Iterator[Batch]:
        """See `AsyncTrainer.batches`; here the loop gives back what it took as soon as it is left."""
        batches = self._async.batches(prefetch, wait_s, lease_s)
        try:
            while True:
                yield Batch(self._portal.run(_next(batches)), self._portal)
        finally:
            self._portal.finish(_closed(batches))

    def close(self) -> None:
        """Give back what was taken and not acknowledged, and end the thread. Safe to repeat."""
        self._portal.finish(self._async.aclose())
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncEnvironment:
    """A producer of groups; see `lachesis.Environment`, whose methods wait here. It may be used by several threads."""

    def __init__(self, name: str, settings: Settings | None = None, **options: Unpack[EnvironmentOptions]) -> None:
        """See `Environment`."""
        self._async = Environment(name, settings, **options)
        self._portal = Portal()

    @property
    def id(self) -> int:
        """See `Environment.id`."""
        return self._async.id

    @property
    def settings(self) -> Settings:
        """Where the service is and which run is meant."""
        return self._async.settings

    @property
    def running_groups(self) -> int:
        """See `Environment.running_groups`."""
        return self._async.running_groups

    @property
    def trouble(self) -> LachesisError | None:
        """See `Environment.trouble`."""
        return self._async.trouble

    @property
    def outcomes(self) -> Counter[GroupOutcome]:
        """See `Environment.outcomes`."""
        return self._async.outcomes

    def submit(self, group: Group) -> str:
        """See `Environment.submit`."""
        return self._portal.run(self._async.submit(group))

    def flush(self) -> None:
        """See `Environment.flush`."""
        self._portal.run(self._async.flush())

    def credits(self) -> Credits:
        """See `Environment.credits`."""
        return self._portal.run(self._async.credits())

    @contextlib.contextmanager
    def permit(self) -> Iterator[Credits]:
        """See `Environment.permit`."""
        permit = self._async.permit()
        granted = self._portal.run(_entered(permit))
        try:
            yield granted
        finally:
            self._portal.run(_left(permit))

    def __enter__(self) -> Self:
        try:
            self._portal.run(self._async.__aenter__())
        except BaseException:
            self._portal.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._portal.run(self._async.__aexit__(kind, error, trace))
        finally:
            self._portal.close()


async def _next(batches: AsyncIterator[AsyncBatch]) -> AsyncBatch:
    return await anext(batches)


async def _entered(permit: contextlib.AbstractAsyncContextManager[Credits]) -> Credits:
    return await permit.__aenter__()


async def _left(permit: contextlib.AbstractAsyncContextManager[Credits]) -> None:
    await permit.__aexit__(None, None, None)


async def _closed(batches: AsyncGenerator[AsyncBatch, None]) -> None:
    await batches.aclose()
