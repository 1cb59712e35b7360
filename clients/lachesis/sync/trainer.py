"""A trainer for code without an event loop: its own runs in a thread beside it."""

from collections.abc import Iterator
from types import TracebackType
from typing import Literal

from typing_extensions import Self, Unpack

from lachesis._prefetch.in_hand import InHand
from lachesis._public import ForThreads, ShownAsync
from lachesis._transport.bridge import Portal
from lachesis._transport.settings import Settings
from lachesis.batches.batch import AsyncBatch
from lachesis.batches.columns import Columns
from lachesis.rank import Rank
from lachesis.runs.trainer import AsyncTrainer, NewRun, RunChanges
from lachesis.sync.curriculum import SyncCurriculum, shared
from lachesis.wire.batches import Explanation, LeasedBatches
from lachesis.wire.groups import Lineage
from lachesis.wire.runs import RetentionState, Rewound, Run
from lachesis.wire.status import RunStatus


class Batch(InHand, Columns):
    """A batch that this trainer holds; see `lachesis.AsyncBatch`, whose methods wait here."""

    _twin = "AsyncBatch"
    _async: AsyncBatch

    def __init__(self, batch: AsyncBatch, portal: Portal) -> None:
        super().__init__(batch.info, batch.file)
        self._async = batch
        self._portal = portal

    def ack(self) -> None:
        """End the batch: it was trained on. Safe to repeat.

        Raises:
            LeaseLost: It was, or will be, handed out again: what was made of it here must not count twice.
            Unreachable: Whether it is acknowledged is unknown; repeat it, or let the service hand it out again.
        """
        self._portal.run(self._async.ack())

    def nack(self, reason: str | None = None) -> None:
        """Give the batch back, and say the ``reason`` if there is one: its groups go to the front of the queue.

        Raises `LeaseLost` where it is not in our hands any more. Safe to repeat.
        """
        self._portal.run(self._async.nack(reason))


class Trainer(ShownAsync, ForThreads):
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

    _twin = "AsyncTrainer"
    _async: AsyncTrainer

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
        name: str | None = None,
    ) -> None:
        """Set up, without a word to the service yet: ``Trainer("http://lachesis:8000", run="math")``.

        Args:
            settings: The service's URL, or all `Settings`; None: as the environment variables say.
            url, run: The same by name; they count more.
            name: What operators see beside the batches it holds.

        Raises:
            ValueError, TypeError: An argument or a variable is wrong; the message names it.
        """
        self._async = AsyncTrainer(settings, url=url, run=run, name=name)
        self._async._shown_as = "Trainer"
        self._portal = Portal()

    @property
    def settings(self) -> Settings:
        """Where the service is and which run is meant."""
        return self._async.settings

    def create_run(self, batch_size: int, **settings: Unpack[NewRun]) -> Run:
        """Make the run; if it is there and is as asked, nothing changes.

        Args:
            batch_size: Sequences in each batch, exactly, ``>= 1``.
            settings: See `lachesis.wire.runs.RunCreate`.

        Raises:
            InvalidField: A setting is wrong, or there is none of that name.
            RunExists: It is there with other settings than these; those not named here do not count.
        """
        return self._portal.run(self._async.create_run(batch_size, **settings))

    def run(self) -> Run:
        """Return the run as it is: its settings, step and policy version. `RunNotFound`: there is none."""
        return self._portal.run(self._async.run())

    def change_run(self, **changes: Unpack[RunChanges]) -> Run:
        """Make ``changes`` to settings; what is not named stays. `InvalidField`: a value or a name is wrong."""
        return self._portal.run(self._async.change_run(**changes))

    def delete_run(self) -> None:
        """Remove the run and everything it owns."""
        self._portal.run(self._async.delete_run())

    def status(self) -> RunStatus:
        """Return what operators want to know of the run."""
        return self._portal.run(self._async.status())

    def explain(self) -> Explanation:
        """Say whether a batch would form now, and why not."""
        return self._portal.run(self._async.explain())

    def leased_batches(self) -> LeasedBatches:
        """Return the batches that are in trainers' hands, wait to be handed out again, or were set aside."""
        return self._portal.run(self._async.leased_batches())

    def release_quarantined(self, batch: str) -> None:
        """Put the groups of a ``batch`` that was set aside back into the queue. `LeaseLost`: it is not quarantined."""
        self._portal.run(self._async.release_quarantined(batch))

    def drop_quarantined(self, batch: str) -> None:
        """Drop a ``batch`` that was set aside, with its groups. `BatchInUse`: it is not quarantined."""
        self._portal.run(self._async.drop_quarantined(batch))

    def find_group(self, group: str) -> Lineage:
        """Say where the ``group`` of this id is, and what became of it. `GroupNotFound`: nobody knows."""
        return self._portal.run(self._async.find_group(group))

    def delete_group(self, group: str) -> None:
        """Delete the waiting ``group`` with this id. Safe to repeat.

        Raises `GroupNotFound` if the run does not know it, `GroupNotWaiting` if it is in a batch or has left.
        """
        self._portal.run(self._async.delete_group(group))

    def delete_groups(
        self,
        *,
        environment: int | Literal["none"] | None = None,
        size: int | None = None,
        older_than_version: int | None = None,
    ) -> int:
        """Delete all waiting groups that match every given criterion; returns how many.

        Args:
            environment: Id of their environment; ``"none"``: groups without an environment.
            size: Number of their sequences.
            older_than_version: Matches groups sampled by a policy version below this one.

        Raises:
            InvalidField: No criterion is given, or one is wrong.
        """
        deleting = self._async.delete_groups(environment=environment, size=size, older_than_version=older_than_version)
        return self._portal.run(deleting)

    def set_policy_version(self, version: int) -> int:
        """Tell how many weight updates there were: ``version``. Returns queued groups that were dropped for theirs.

        Prefetched batches with groups that this makes too old are given back, and replaced. Raises `RunRewound` where
        another trainer rewound the run after this one began; then nothing has changed.
        """
        return self._portal.run(self._async.set_policy_version(version))

    def checkpoint(self, step: int, policy_version: int | None = None) -> RetentionState:
        """Report that the state after ``step`` was saved: batches up to it are not needed again.

        Args:
            step: Step of the last batch in that state.
            policy_version: The policy version of that state, which `rewind` restores; None: the one in force.

        Raises:
            RunRewound: Another trainer rewound the run after this one began; nothing has changed.
        """
        return self._portal.run(self._async.checkpoint(step, policy_version))

    def rewind(self, step: int) -> Rewound:
        """Go back to the state that was saved after ``step``: the batches since are handed out again, in order.

        They come again whatever their age. The ``policy_version`` of the answer is the one stored with the checkpoint,
        and is in force again. Raises `RewindImpossible` if those batches are not kept any more.
        """
        return self._portal.run(self._async.rewind(step))

    def curriculum(self, name: str) -> SyncCurriculum:
        """Return the run's curriculum of this ``name``, over these connections; it need not be there yet."""
        return shared(self._async.curriculum(name), self._portal)

    def take(self, wait_s: float = 0.0, lease_s: float | None = None, rank: Rank | None = None) -> Batch | None:
        """Take the next batch; `batches` is the usual way to do so. None: there was none in time.

        Args:
            wait_s: How long to wait for one, 0 to 600.
            lease_s: How long to hold it at a time; None: as the run says.
            rank: Take this rank's shard of the oldest batch that it has not acknowledged.

        Raises:
            InvalidField: A time is out of its range.
            RunNotFound, RunArchived: The run hands out no batches.
            RunRewound: Another trainer rewound the run after this one began.
            RanksDisagree: Other ranks that have the batch divide it otherwise.
        """
        taken = self._portal.run(self._async.take(wait_s, lease_s, rank))
        return None if taken is None else Batch(taken, self._portal)

    def batches(
        self,
        prefetch: int = 1,
        wait_s: float | None = None,
        lease_s: float | None = None,
        rank: Rank | None = None,
    ) -> Iterator[Batch]:
        """Take batch after batch, some ahead. Acknowledge each when it was trained on.

        As soon as the loop is left, whatever way, all that it took and did not acknowledge is given back.

        Args:
            prefetch: Batches to keep ready beside the one in hand.
            wait_s: How long to wait for the next; None: for ever.
            lease_s: How long to hold a batch at a time, it is extended meanwhile; None: as the run says.
            rank: Take this rank's shard of each batch: every rank of the trainer runs such a loop, and no broadcast is
                needed. A batch ends when all have acknowledged their shards; one that gives up gives up for all.

        Raises:
            NoBatch: None came within ``wait_s``; the message says what was missing.
            RunNotFound, RunArchived: The run hands out no batches.
            RunRewound: Another trainer rewound the run after this one began.
            RanksDisagree: Other ranks that have the batch divide it otherwise.
        """
        batches = self._async.batches(prefetch, wait_s, lease_s, rank)
        return self._portal.each(batches, lambda batch: Batch(batch, self._portal))

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
