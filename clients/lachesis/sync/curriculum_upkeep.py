"""What owners of a curriculum do beside drawing from it and observing, without an event loop."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from typing_extensions import Unpack

from lachesis._transport.bridge import Portal
from lachesis._transport.curriculum_calls import MOST_ITEMS_SENT, Registered, several
from lachesis._transport.files import StateFile
from lachesis._transport.settings import Settings
from lachesis.curriculum.curriculum import Curriculum
from lachesis.curriculum.options import CurriculumOptions, ItemOptions, SortedBy
from lachesis.wire.curricula import CurriculumInfo, StateLoaded
from lachesis.wire.curriculum_items import Comparison, Item, ItemDetails, ItemsRegistered


class SyncCurriculumUpkeep:
    """Sets a curriculum up, registers its items and looks at them, saves and restores it."""

    def __init__(self, curriculum: Curriculum, portal: Portal) -> None:
        self._async = curriculum
        self._async._shown_as = "SyncCurriculum"
        self._portal = portal

    @property
    def name(self) -> str:
        """Its name in the run."""
        return self._async.name

    @property
    def settings(self) -> Settings:
        """Where the service is and which run is meant."""
        return self._async.settings

    def set_up(self, **settings: Unpack[CurriculumOptions]) -> CurriculumInfo:
        """Give the run this curriculum, with these ``settings``, if it is not there.

        One that is there keeps its settings, which somebody may have changed while it goes on; where they are not
        these, that is logged, and `change` changes them.

        Raises:
            InvalidField: A setting is wrong, there is none of that name, or the strategy needs ``total_steps``.
            RunNotFound: There is no such run.
        """
        return self._portal.run(self._async.set_up(**settings))

    def change(self, **changes: Unpack[CurriculumOptions]) -> CurriculumInfo:
        """Make ``changes`` to settings while it goes on, its strategy among them; what is not named stays.

        Also ``temperature``, of which 0.1 is usual for ``bandit`` and 1 for the others: name it with the strategy.

        Raises:
            InvalidField: A setting is wrong, there is none of that name, or the strategy needs ``total_steps``.
            CurriculumNotFound: The run has none of this name.
        """
        return self._portal.run(self._async.change(**changes))

    def info(self) -> CurriculumInfo:
        """Return its settings, and how many items it has: seen, in flight, in each bin."""
        return self._portal.run(self._async.info())

    def register(self, items: Iterable[Registered]) -> ItemsRegistered:
        """Register items, in requests of many; those that are there keep what is known of them.

        Args:
            items: As many as you like, asked for a slice at a time: keys, or `NewItem`, or what it is made of:
                ``{"key": "gsm8k/17", "prior": 0.4, "category": "algebra", "metadata": {…}}``.

        Raises:
            InvalidField: One is wrong; the slices before it are registered, and the same again changes nothing.
        """
        # Items are asked for in this thread: the other one may have leases to extend.
        found, registered, known = iter(several(items)), 0, 0
        while some := list(islice(found, MOST_ITEMS_SENT)):
            done = self._portal.run(self._async.register(some))
            registered, known = registered + done.registered, known + done.known
        return ItemsRegistered(registered=registered, known=known)

    def item(self, key: str) -> ItemDetails:
        """Return what is known of the item of this ``key``, with its last 50 scores.

        Raises:
            InvalidField: It is no key.
            ItemNotFound: There is none of this key.
        """
        return self._portal.run(self._async.item(key))

    def change_item(self, key: str, **changes: Unpack[ItemOptions]) -> ItemDetails:
        """Change what an item was registered with; None takes it away, and what is known of it stays.

        Args:
            key: The item's.
            changes: ``category``, ``prior``, ``metadata``.

        Raises:
            InvalidField: A value is wrong, or there is none of that name.
            ItemNotFound: There is none.
        """
        return self._portal.run(self._async.change_item(key, **changes))

    def forget_item(self, key: str) -> None:
        """Remove the item of this ``key``, and what is known of it.

        Raises:
            InvalidField: It is no key.
            ItemNotFound: There is none of this key.
        """
        self._portal.run(self._async.forget_item(key))

    def known_items(
        self, *, in_bin: int | None = None, sort: SortedBy = "mean_reward", descending: bool = False
    ) -> Iterator[Item]:
        """Look at all items, page by page; nothing is handed out.

        Args:
            in_bin: Only those of this bin, 0 the easiest.
            sort: By mean reward all of them, those not known last; else only those that were seen.
            descending: The largest first.

        Raises:
            InvalidField: There is no such bin or order.
            CurriculumNotFound: The run has none of this name.
        """
        return self._portal.each(
            self._async.known_items(in_bin=in_bin, sort=sort, descending=descending), lambda item: item
        )

    def metrics(self, step: int | None = None, total_steps: int | None = None) -> dict[str, float]:
        """Return numbers by name, such as ``curriculum/mean_difficulty``, for loggers as they are.

        Args:
            step: Trainer steps so far; None: the run's step.
            total_steps: Those at which progress is 1; None: as the curriculum says.

        Raises:
            CurriculumNotFound: The run has none of this name.
        """
        return self._portal.run(self._async.metrics(step, total_steps))

    def what_if(self, n: int = 16, step: int | None = None, **settings: Unpack[CurriculumOptions]) -> Comparison:
        """Say what other settings would sample now, beside what these do: ``what_if(strategy="thompson")``.

        Nothing is changed or handed out.

        Args:
            n: Items to sample.
            step: Trainer steps so far; None: the run's step.
            settings: What would be otherwise.

        Raises:
            InvalidField: A value is wrong, or there is no setting of that name.
            CurriculumNotFound: The run has none of this name.
        """
        return self._portal.run(self._async.what_if(n, step, **settings))

    def state(self) -> bytes:
        """Return all of it as one document: settings, generator, items and what is known of them."""
        return self._portal.run(self._async.state())

    def save_state(self, file: StateFile) -> None:
        """Write what `state` returns into a ``file``, as it comes: for curricula of a million items.

        Args:
            file: Open for bytes, or a path; what is there is replaced once all of it has come.
        """
        self._portal.run(self._async.save_state(file))

    def load_state(self, state: bytes | StateFile | Mapping[str, Any]) -> StateLoaded:
        """Make it what a saved one was, which goes on with the same samples; all or nothing.

        Args:
            state: What `state` returned, a file that has it or its path, or the state of Atropos's
                ``CurriculumScheduler``.

        Raises:
            InvalidField, MalformedBody: It is none; the message says where.
            RunNotFound: There is no such run.
        """
        return self._portal.run(self._async.load_state(state))

    def delete(self) -> None:
        """Remove it with its items and all that is known of them."""
        self._portal.run(self._async.delete())
