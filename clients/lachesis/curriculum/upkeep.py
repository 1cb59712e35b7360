"""What owners of a curriculum do beside drawing from it and observing, for asyncio."""

import json
import logging
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

from typing_extensions import Unpack

from lachesis._transport.bodies import checked, differing, invalid
from lachesis._transport.curriculum_calls import CurriculumCalls, Registered, slices
from lachesis._transport.files import StateFile, read_from, written_to
from lachesis._transport.http import Sender
from lachesis._transport.protocol import JSON
from lachesis._transport.settings import Settings
from lachesis.curriculum.options import CurriculumOptions, ItemOptions, SortedBy
from lachesis.wire.curricula import (
    CURRICULUM_NAME,
    JSON_LINES,
    CurriculumChange,
    CurriculumInfo,
    CurriculumSettings,
    StateLoaded,
)
from lachesis.wire.curriculum_items import (
    Comparison,
    Item,
    ItemChange,
    ItemDetails,
    ItemsRegistered,
    WhatIf,
)

log = logging.getLogger(__name__)


class CurriculumUpkeep:
    """Sets a curriculum up, registers its items and looks at them, saves and restores it."""

    def __init__(self, name: str, settings: Settings, sender: Sender) -> None:
        """Set up, without a word to the service yet.

        Raises:
            InvalidField: It is no name.
        """
        if not re.fullmatch(CURRICULUM_NAME, str(name)):
            raise invalid(f"should be a curriculum's name (letters, digits, ._:@-), not {name!r}", ("name",))
        self.name = name
        self.settings = settings
        self._calls = CurriculumCalls(settings.run, name)
        self._sender = sender

    async def set_up(self, **settings: Unpack[CurriculumOptions]) -> CurriculumInfo:
        """Give the run this curriculum, with these ``settings``, if it is not there.

        One that is there keeps its settings, which somebody may have changed while it goes on; where they are not
        these, that is logged, and `change` changes them.

        Raises:
            InvalidField: A setting is wrong, there is none of that name, or the strategy needs ``total_steps``.
            RunNotFound: There is no such run.
        """
        asked = checked(CurriculumSettings, **settings)
        info = await self._sender.send(self._calls.set_up(asked))
        if others := differing(asked, info.settings, settings):
            log.warning("curriculum %s is there with other settings, and keeps them: %s", self.name, others)
        return info

    async def change(self, **changes: Unpack[CurriculumOptions]) -> CurriculumInfo:
        """Make ``changes`` to settings while it goes on, its strategy among them; what is not named stays.

        Also ``temperature``, of which 0.1 is usual for ``bandit`` and 1 for the others: name it with the strategy.

        Raises:
            InvalidField: A setting is wrong, there is none of that name, or the strategy needs ``total_steps``.
            CurriculumNotFound: The run has none of this name.
        """
        return await self._sender.send(self._calls.change(checked(CurriculumChange, **changes)))

    async def info(self) -> CurriculumInfo:
        """Return its settings, and how many items it has: seen, in flight, in each bin."""
        return await self._sender.send(self._calls.info())

    async def register(self, items: Iterable[Registered]) -> ItemsRegistered:
        """Register items, in requests of many; those that are there keep what is known of them.

        Args:
            items: As many as you like, asked for a slice at a time: keys, or `NewItem`, or what it is made of:
                ``{"key": "gsm8k/17", "prior": 0.4, "category": "algebra", "metadata": {…}}``.

        Raises:
            InvalidField: One is wrong; the slices before it are registered, and the same again changes nothing.
        """
        registered = known = 0
        for lines in slices(items):
            done = await self._sender.send(self._calls.register(lines))
            registered, known = registered + done.registered, known + done.known
        return ItemsRegistered(registered=registered, known=known)

    async def item(self, key: str) -> ItemDetails:
        """Return what is known of the item of this ``key``, with its last 50 scores.

        Raises:
            InvalidField: It is no key.
            ItemNotFound: There is none of this key.
        """
        return await self._sender.send(self._calls.item(key))

    async def change_item(self, key: str, **changes: Unpack[ItemOptions]) -> ItemDetails:
        """Change what an item was registered with; None takes it away, and what is known of it stays.

        Args:
            key: The item's.
            changes: ``category``, ``prior``, ``metadata``.

        Raises:
            InvalidField: A value is wrong, or there is none of that name.
            ItemNotFound: There is none.
        """
        return await self._sender.send(self._calls.change_item(key, checked(ItemChange, **changes)))

    async def forget_item(self, key: str) -> None:
        """Remove the item of this ``key``, and what is known of it.

        Raises:
            InvalidField: It is no key.
            ItemNotFound: There is none of this key.
        """
        await self._sender.send(self._calls.forget_item(key))

    async def known_items(
        self, *, in_bin: int | None = None, sort: SortedBy = "mean_reward", descending: bool = False
    ) -> AsyncGenerator[Item, None]:
        """Look at all items, page by page; nothing is handed out.

        Args:
            in_bin: Only those of this bin, 0 the easiest.
            sort: By mean reward all of them, those not known last; else only those that were seen.
            descending: The largest first.

        Raises:
            InvalidField: There is no such bin or order.
            CurriculumNotFound: The run has none of this name.
        """
        asked = {"limit": "1000", "sort": sort, "descending": str(descending).lower()}
        query = asked if in_bin is None else {**asked, "bin": str(in_bin)}
        while True:
            page = await self._sender.send(self._calls.page(query))
            for item in page.items:
                yield item
            if page.cursor is None:
                return
            query = {**query, "cursor": page.cursor}

    async def metrics(self, step: int | None = None, total_steps: int | None = None) -> dict[str, float]:
        """Return numbers by name, such as ``curriculum/mean_difficulty``, for loggers as they are.

        Args:
            step: Trainer steps so far; None: the run's step.
            total_steps: Those at which progress is 1; None: as the curriculum says.

        Raises:
            CurriculumNotFound: The run has none of this name.
        """
        asked = {"step": step, "total_steps": total_steps}
        query = {name: str(value) for name, value in asked.items() if value is not None}
        return (await self._sender.send(self._calls.metrics(query))).metrics

    async def what_if(self, n: int = 16, step: int | None = None, **settings: Unpack[CurriculumOptions]) -> Comparison:
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
        return await self._sender.send(self._calls.what_if(checked(WhatIf, n=n, step=step, **settings)))

    async def state(self) -> bytes:
        """Return all of it as one document: settings, generator, items and what is known of them."""
        return bytes(await self._sender.send(self._calls.state()))

    async def save_state(self, file: StateFile) -> None:
        """Write what `state` returns into a ``file``, as it comes: for curricula of a million items.

        Args:
            file: Open for bytes, or a path; what is there is replaced once all of it has come.
        """
        with written_to(file) as sink:
            await self._sender.send(self._calls.save_state(sink))

    async def load_state(self, state: bytes | StateFile | Mapping[str, Any]) -> StateLoaded:
        """Make it what a saved one was, which goes on with the same samples; all or nothing.

        Args:
            state: What `state` returned, a file that has it or its path, or the state of Atropos's
                ``CurriculumScheduler``.

        Raises:
            InvalidField, MalformedBody: It is none; the message says where.
            RunNotFound: There is no such run.
        """
        if isinstance(state, Mapping):
            return await self._sender.send(self._calls.load_state(json.dumps(state).encode(), JSON))
        if isinstance(state, bytes | bytearray | memoryview):
            return await self._sender.send(self._calls.load_state(state, JSON_LINES))
        with read_from(state) as body:
            return await self._sender.send(self._calls.load_state(body, JSON_LINES))

    async def delete(self) -> None:
        """Remove it with its items and all that is known of them."""
        await self._sender.send(self._calls.delete())
