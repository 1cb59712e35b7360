"""A replay buffer for code without an event loop: its own runs in a thread beside it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from numpy.typing import NDArray
from typing_extensions import Self, Unpack

from lachesis._prefetch.in_hand import InHand
from lachesis._public import ForThreads, ShownAsync
from lachesis._transport.bridge import Portal
from lachesis._transport.settings import Settings
from lachesis.loader.nested import Nested
from lachesis.loader.sources import AsyncSource
from lachesis.replay.buffer import HowDrawn, Replay, ReplayOptions
from lachesis.replay.cutting import EachStep
from lachesis.replay.sample import AsyncSample, Records
from lachesis.replay.worker import Worker
from lachesis.sync.replay_upkeep import SyncReplayUpkeep
from lachesis.wire.fragments import FragmentOutcome
from lachesis.wire.replay import ReplayState


class Sample(InHand, Records):
    """A sample that this trainer holds; see `lachesis.AsyncSample`, whose methods wait here."""

    _twin = "AsyncSample"
    _async: AsyncSample

    def __init__(self, sample: AsyncSample, portal: Portal) -> None:
        super().__init__(sample.info, sample.blobs)
        self._async = sample
        self._portal = portal

    def ack(self) -> None:
        """End the sample: it was trained on, and its uses count. Safe to repeat.

        Raises:
            LeaseLost: The lease ran out, and its uses were given back.
            Unreachable: Whether it is acknowledged is unknown; repeat it, or let the lease run out.
        """
        self._portal.run(self._async.ack())

    def nack(self, reason: str | None = None) -> None:
        """Give the sample back, and say the ``reason`` if there is one: its uses do not count. Safe to repeat.

        Raises `LeaseLost` where it is not in our hands any more.
        """
        self._portal.run(self._async.nack(reason))


class SyncWorker(ShownAsync, ForThreads):
    """Streams what happens in its episodes into a buffer; made by `SyncReplay.worker`, and used in one thread.

    Fragments are sent in order, and again with the next call where that failed: none is lost, and none stored twice.
    At the end of its block it sends the rest, as a shorter fragment.
    """

    _twin = "Worker"
    _async: Worker

    def __init__(self, worker: Worker, portal: Portal) -> None:
        self._async = worker
        self._async._shown_as = "SyncWorker"
        self._portal = portal

    @property
    def session(self) -> int:
        """The session it is in. `RuntimeError`: it has not begun."""
        return self._async.session

    @property
    def outcomes(self) -> Counter[FragmentOutcome]:
        """What became of fragments that were sent."""
        return self._async.outcomes

    def insert(
        self,
        steps: Nested,
        policy_version: int | Sequence[int] | NDArray[Any],
        *,
        episode: str | None = None,
        reward: EachStep | None = None,
        cost: EachStep | None = None,
        priority: float | None = None,
    ) -> None:
        """Add steps of an episode, and send the fragments that are full with them.

        Waits while the rate limiter holds inserts back.

        Args:
            steps: Arrays [steps, …], nested in dicts and lists; the same ones for all steps of a fragment. CPU tensors
                of PyTorch will do, bf16 and f8 too.
            policy_version: What sampled them: one for all, or one for each. A trainer reads it as `policy_versions`.
            episode: The episode's id; a fragment names all that it has steps of.
            reward: One for each step, or the same for all; a fragment has their sum.
            cost: What they cost to train on, in any unit, ``>= 0``; likewise.
            priority: What they are worth to be sampled; a fragment has the largest of its steps.

        Raises:
            InvalidField: Arrays, or numbers, are not as they should be.
            ReplayBlocked: The limiter held back for longer than ``patience_s``; the fragments go with the next call.
            ServiceError, Unreachable: They could not be sent; they go with the next call.
        """
        self._portal.run(
            self._async.insert(steps, policy_version, episode=episode, reward=reward, cost=cost, priority=priority)
        )

    def flush(self) -> None:
        """Send what has been added, the last of it as a shorter fragment; see `insert` for what it raises."""
        self._portal.run(self._async.flush())

    def __enter__(self) -> Self:
        """Find out where the worker was, should it have been here before."""
        self._portal.run(self._async.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.run(self._async.__aexit__(kind, error, trace))


class SyncReplay(SyncReplayUpkeep, ShownAsync, ForThreads):
    """The replay buffer of one run; see `lachesis.Replay`, whose methods wait here.

    ```
    with SyncReplay() as replay:
        for sample in replay.samples(num_chunks=32, prefetch=2):
            errors = train(sample.stacked(), sample.importance_weights)
            replay.set_priorities(dict(zip(sample.chunks, errors)))
            sample.ack()
    ```

    Leases are extended in a thread of its own while a step runs. It does not survive a fork: make it in the process
    that uses it.
    """

    _twin = "Replay"
    _async: Replay

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
        name: str | None = None,
    ) -> None:
        """Set up, without a word to the service yet: ``SyncReplay("http://lachesis:8000", run="robots")``.

        Args:
            settings: The service's URL, or all `Settings`; None: as the environment variables say.
            url, run: The same by name; they count more.
            name: What operators see beside the samples it holds.

        Raises:
            ValueError, TypeError: An argument or a variable is wrong; the message names it.
        """
        self._async = Replay(settings, url=url, run=run, name=name)
        self._async._shown_as = "SyncReplay"
        self._portal = Portal()

    @property
    def settings(self) -> Settings:
        """Where the service is and which run is meant."""
        return self._async.settings

    def set_up(self, **settings: Unpack[ReplayOptions]) -> ReplayState:
        """Give the run a buffer with these ``settings``, if it has none.

        One that is there keeps its settings, which somebody may have changed while it goes on; where they are not
        these, that is logged, and `change` changes them.

        Raises:
            InvalidField: A setting is wrong, there is none of that name, or they must come to a standstill.
            RunNotFound: There is no such run.
        """
        return self._portal.run(self._async.set_up(**settings))

    def change(self, **changes: Unpack[ReplayOptions]) -> ReplayState:
        """Make ``changes`` to settings while it goes on; what is not named stays.

        Raises:
            InvalidField: A setting is wrong, there is none of that name, or they must come to a standstill.
            ReplayNotFound: The run has no buffer.
        """
        return self._portal.run(self._async.change(**changes))

    def state(self) -> ReplayState:
        """Return what the buffer looks like now: sizes, histograms, what blocks whom. `ReplayNotFound`: it has none."""
        return self._portal.run(self._async.state())

    def begin_session(self, session: int) -> int:
        """Begin training attempt ``session``; returns how many chunks of former ones were retired.

        Raises `InvalidField` where a later one has begun.
        """
        return self._portal.run(self._async.begin_session(session))

    def set_priorities(self, priorities: Mapping[int, float]) -> list[int]:
        """Set ``priorities`` by chunk, finite and >= 0; returns the chunks that are not there any more.

        Raises `InvalidField` where one is none; those of the ten thousands before it are set.
        """
        return self._portal.run(self._async.set_priorities(priorities))

    def worker(
        self,
        name: str,
        steps: int,
        session: int | None = None,
        patience_s: float | None = None,
        wait_for_run_s: float = 0.0,
    ) -> SyncWorker:
        """Make a worker that fills the buffer; it begins with ``with``.

        Args:
            name: Its name, unique in the run; coming back under it, it goes on with its numbers.
            steps: Of each fragment.
            session: The training attempt it works for; None: the one in progress.
            patience_s: How long to wait while the rate limiter holds inserts back; None: for ever.
            wait_for_run_s: How long beginning may wait for a trainer to make the run and its buffer; 0: they must be
                there.
        """
        return SyncWorker(self._async.worker(name, steps, session, patience_s, wait_for_run_s), self._portal)

    def samples(
        self,
        num_chunks: int | None = None,
        num_fragments: int | None = None,
        prefetch: int = 1,
        wait_s: float | None = None,
        **drawn: Unpack[HowDrawn],
    ) -> Iterator[Sample]:
        """Take sample after sample, some ahead. Acknowledge each when it was trained on.

        As soon as the loop is left, whatever way, all that it took and did not acknowledge is given back.

        Args:
            num_chunks: Chunks in each; or, instead,
            num_fragments: fragments in each, a multiple of the buffer's ``fragments_per_chunk``.
            prefetch: Samples to keep ready beside the one in hand.
            wait_s: How long to wait for the next; None: for ever.
            drawn: ``strategy``, ``alpha``, ``beta``, ``half_life_chunks``; ``lease_s``, how long to hold a sample at a
                time, it is extended meanwhile. What is not named is as the buffer and the run say.

        Raises:
            NoBatch: None came within ``wait_s``; the message says what was missing.
            InvalidField: A value is wrong, or there can never be so many.
            ReplayNotFound: The run has no buffer.
        """
        samples = self._async.samples(num_chunks, num_fragments, prefetch, wait_s, **drawn)
        return self._portal.each(samples, lambda sample: Sample(sample, self._portal))

    def show(self, sample: str) -> Records:
        """Look at a ``sample`` that somebody holds: for other ranks of its trainer, and for one that came back.

        Raises `SampleNotFound` where none of that id is held.
        """
        return self._portal.run(self._async.show(sample))

    def fetch(self, fragment: str) -> Nested:
        """Read the arrays of the ``fragment`` of this id, nested. `FragmentNotFound`: the buffer holds it no more."""
        return self._portal.run(self._async.fetch(fragment))

    def source(self, fragments: Sequence[str]) -> AsyncSource[str]:
        """Return the ``fragments`` of these ids as a source for `lachesis.loader.Loader`, which reads in parallel."""
        return self._async.source(fragments)

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
