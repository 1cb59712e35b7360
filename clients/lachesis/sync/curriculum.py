"""A curriculum for code without an event loop: its own runs in a thread beside it."""

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from numpy.typing import NDArray
from typing_extensions import Self, Unpack

from lachesis._prefetch.items import ItemStream
from lachesis._public import ForThreads, ShownAsync
from lachesis._transport.bridge import Portal
from lachesis._transport.settings import Settings
from lachesis.curriculum.curriculum import Curriculum
from lachesis.curriculum.options import HowSampled
from lachesis.sync.curriculum_upkeep import SyncCurriculumUpkeep
from lachesis.wire.curricula import StrategyName
from lachesis.wire.curriculum_items import SampledItem, SampledItems


class SyncItemStream(ForThreads):
    """Items to try, one after the other, drawn ahead; made by `SyncCurriculum.items`.

    Any number of threads may take items of one stream, and a loop that was left may be taken up again. It ends when
    the stream or its curriculum is closed. What is ready then is given back.
    """

    _twin = "ItemStream"

    def __init__(self, stream: ItemStream, portal: Portal) -> None:
        self._async = stream
        self._portal = portal

    def close(self) -> None:
        """End the stream: loops over it end. Safe to repeat."""
        self._portal.finish(self._async.aclose())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SampledItem:
        try:
            return self._portal.run(self._async.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncCurriculum(SyncCurriculumUpkeep, ShownAsync, ForThreads):
    """A curriculum of one run; see `lachesis.Curriculum`, whose methods wait here. Several threads may use it.

    ```
    with SyncCurriculum("gsm8k") as curriculum:
        for item in curriculum.items(prefetch=64):
            curriculum.observe(item, rollout(item.key))
    ```

    It does not survive a fork: make it in the process that uses it.
    """

    _twin = "Curriculum"
    _async: Curriculum

    def __init__(
        self,
        name: str,
        settings: Settings | str | None = None,
        *,
        url: str | None = None,
        run: str | None = None,
    ) -> None:
        """Set up, without a word to the service yet: ``SyncCurriculum("gsm8k", "http://lachesis:8000", run="math")``.

        Args:
            name: Its name in the run.
            settings: The service's URL, or all `Settings`; None: as the environment variables say.
            url, run: The same by name; they count more.

        Raises:
            InvalidField: It is no name.
            ValueError, TypeError: Another argument or a variable is wrong; the message names it.
        """
        super().__init__(Curriculum(name, settings, url=url, run=run), Portal())
        self._owns_portal = True

    def items(
        self,
        prefetch: int = 64,
        *,
        step: int | Callable[[], int] | None = None,
        total_steps: int | None = None,
        strategy: StrategyName | None = None,
        wait_s: float | None = None,
    ) -> SyncItemStream:
        """Draw items to try, some ahead: ``for item in curriculum.items()``, in any number of threads.

        Nobody else gets an item of it until it was observed, or for ``in_flight_ttl_s``. While all are in flight it
        waits. Those that were drawn ahead and not used are given back when the stream is closed.

        Args:
            prefetch: Items to keep ready.
            step: Trainer steps so far, for strategies that look at it, or what is asked for them with each request;
                None: the run's step.
            total_steps: Those at which progress is 1; None: as the curriculum says.
            strategy: For this stream alone; None: the curriculum's.
            wait_s: How long to wait for the next item; None: for ever.

        Raises:
            InvalidField: A value is wrong. As of the first item, also:
            NoItem: None came within ``wait_s``; the message says why.
            CurriculumNotFound: The run has none of this name.
        """
        return SyncItemStream(
            self._async.items(prefetch, step=step, total_steps=total_steps, strategy=strategy, wait_s=wait_s),
            self._portal,
        )

    def observe(
        self, item: str | SampledItem, rewards: Sequence[float] | NDArray[Any], policy_version: int | None = None
    ) -> None:
        """Tell what an ``item`` was rewarded with; it is sent in the background, with others, within 0.1 s.

        Each is counted once, however often its request had to be repeated, for as long as the service is away. Waits
        while 10,000 are on their way.

        Args:
            item: The item, or its key; one that is not there yet is registered.
            rewards: One for each sequence of the group, ``>= 1`` of them.
            policy_version: The version that sampled them.

        Raises:
            InvalidField: A value is wrong.
            CurriculumNotFound, ServiceError: Observations before this one were refused; it was not taken.
        """
        self._portal.run(self._async.observe(item, rewards, policy_version))

    def flush(self) -> None:
        """Wait until all observations have arrived.

        Raises:
            CurriculumNotFound, ServiceError: Some were refused.
        """
        self._portal.run(self._async.flush())

    def sample(self, n: int, **how: Unpack[HowSampled]) -> SampledItems:
        """Draw up to ``n`` items, at most 4096, none twice; `items` is the usual way to do so.

        Nobody else gets them until they were observed or given back, or for ``in_flight_ttl_s``.

        Args:
            n: How many.
            how: ``step`` and ``total_steps`` of the trainer; ``strategy`` and ``seed`` for this sample alone.

        Raises:
            InvalidField: A value is wrong, or the strategy needs ``total_steps``.
            CurriculumNotFound: The run has none of this name.
        """
        return self._portal.run(self._async.sample(n, **how))

    def give_back(self, sample: SampledItems, items: Iterable[str | SampledItem] | None = None) -> int:
        """Let others have items of a `sample` that nobody will try.

        Args:
            sample: Whose they are.
            items: Which of them, or their keys; None: all.

        Returns:
            How many it still had; what was observed, or had for ``in_flight_ttl_s``, stays as it is.

        Raises:
            CurriculumNotFound: The run has none of this name.
        """
        return self._portal.run(self._async.give_back(sample, items))

    def bins(self, n: int, **how: Unpack[HowSampled]) -> list[int]:
        """Draw ``n`` numbers of bins, at most 4096, bin 0 the easiest; no item is handed out.

        Args:
            n: How many.
            how: As of `sample`.

        Raises:
            InvalidField: A value is wrong, or the strategy needs ``total_steps``.
            CurriculumNotFound: The run has none of this name.
        """
        return self._portal.run(self._async.bins(n, **how))

    def close(self) -> None:
        """End its streams, send the observations that wait, and close its connections. Safe to repeat.

        Raises:
            CurriculumNotFound, ServiceError, Unreachable: Observations did not arrive.
        """
        try:
            self._portal.finish(self._async.aclose())
        finally:
            if self._owns_portal:
                self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._portal.finish(self._async.__aexit__(kind, error, trace))
        finally:
            if self._owns_portal:
                self._portal.close()


def shared(curriculum: Curriculum, portal: Portal) -> SyncCurriculum:
    """Make one of a curriculum that another class has, in its thread."""
    made = SyncCurriculum.__new__(SyncCurriculum)
    SyncCurriculumUpkeep.__init__(made, curriculum, portal)
    made._owns_portal = False
    return made
