"""Read whole curricula item by item, and write them under a new id until all items are there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from app.core.curriculum.estimates import Estimate
from app.core.curriculum.state import CurriculumHeader
from app.store.curriculum import scripts
from app.store.curriculum.entries import MAX_CURRICULA, MAX_ITEMS, packed_estimate, parse_item, parse_pairs
from app.store.curriculum.store import CurriculumView, named_arm
from app.store.redis.client import RedisClient
from app.store.redis.keys import NONE, CurriculumKeys, RunKeys
from app.store.redis.pipeline import Command
from app.store.redis.scripts import outcome
from app.store.redis.settings_text import settings_text
from lachesis.wire.runs import YEAR_S

_LONGEST_MS = round(1000 * YEAR_S)


@dataclass(frozen=True, slots=True)
class SavedItem:
    """An item as it is saved.

    Attributes:
        key: Its key.
        category: Its category, the empty string for none.
        metadata: JSON, or the empty string.
        estimate: Its whole estimate.
        history: Mean rewards of its last groups, oldest first.
        in_flight_ms: How long others do not get it; 0: they may get it.
    """

    key: str
    category: str
    metadata: str
    estimate: Estimate
    history: tuple[float, ...]
    in_flight_ms: int


class CurriculumStateStore:
    """Saves curricula, and restores them."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def header(self, view: CurriculumView) -> tuple[CurriculumHeader, list[str]]:
        """Read a curriculum without its items, and its categories in the order of their numbers."""
        keys = view.keys
        totals, arms, names = await self._connection.transact(
            [
                ("HMGET", keys.curriculum, "counter", "samples", "updates"),
                ("HGETALL", keys.part("arms")),
                ("HGETALL", keys.part("category_numbers")),
            ]
        )
        numbers = {int(number): name for name, number in parse_pairs(names).items()}
        values = {named_arm(key, numbers): value for key, value in parse_pairs(arms).items()}
        counter, samples, updates = (int(total or 0) for total in totals)
        return CurriculumHeader(view.settings, counter, samples, updates, values), [
            name for _, name in sorted(numbers.items())
        ]

    async def part(
        self, view: CurriculumView, categories: Sequence[str], cursor: int, about: int
    ) -> tuple[int, list[SavedItem]]:
        """Read about ``about`` items in no order, each in one step. The first and the last cursor are 0.

        Items that exist during the whole read come at least once. They may come again if many others are deleted.
        """
        keys = view.keys
        following, entries = await self._connection.scan(keys.part("items"), cursor, about)
        found = list(entries)
        if not found:
            return following, []
        commands: list[Command] = [
            ("HMGET", keys.part("holders"), *found),
            ("HMGET", keys.part("items"), *found),
            ("HMGET", keys.part("estimates"), *found),
            ("ZMSCORE", keys.part("drawn"), *found),
            ("ZMSCORE", keys.part("in_flight"), *found),
        ]
        replies = await self._connection.transact(commands)
        names = ["", *categories]
        items = []
        for key, holder, entry, packed, drawn, until_ms in zip(found, *replies, strict=True):
            if entry is None:
                continue
            item = parse_item(key, entry, packed or b"")
            category = names[item.category] if item.category < len(names) else ""  # it is newer than the header
            # An item that was taken after the view has more than its time left. No document may say more than a year.
            left_ms = min(max(0, int(until_ms or 0) - view.clock_ms), _LONGEST_MS)
            number = int(holder.split()[0]) if drawn is None and holder is not None and left_ms else int(drawn or 0)
            estimate = replace(item.estimate, drawn=number)
            items.append(SavedItem(item.key, category, item.metadata, estimate, item.history, left_ms))
        return following, items

    async def begin(
        self, run: str, curriculum_id: str, header: CurriculumHeader, categories: Sequence[str], revision: str
    ) -> bool:
        """Create a curriculum without a name; False if there is no such run. Safe to repeat."""
        numbers = {name: number for number, name in enumerate(categories, 1)}
        arm_values = {}
        for arm, value in header.arms.items():
            kind, _, name = arm.partition(":")
            arm_values[f"{kind}:{numbers.get(name, 0) if kind == 'category' else name}"] = f"{value:.17g}"
        command = scripts.begin_loading(
            CurriculumKeys(RunKeys(run), curriculum_id),
            curriculum_id=curriculum_id,
            config=settings_text(header.settings),
            revision=revision,
            random_counter=header.counter,
            sample_count=header.samples,
            updates=header.updates,
            categories=categories,
            arm_values=arm_values,
        )
        return bool(await self._connection.run(command))

    async def load(
        self,
        run: str,
        curriculum_id: str,
        categories: Sequence[str],
        items: Sequence[SavedItem],
        before: int,
    ) -> tuple[scripts.LoadOutcome, int]:
        """Add items to a curriculum that has ``before`` items so far, all or none. Safe to repeat.

        Returns:
            ``loaded``; or, with nothing changed, ``gone`` (the load has ended), ``full``, or ``twice``, with the index
            of the first item with a repeated key.
        """
        numbers = {"": 0} | {name: number for number, name in enumerate(categories, 1)}
        command = scripts.load_items(
            CurriculumKeys(RunKeys(run), curriculum_id),
            curriculum_id=curriculum_id,
            most_items=MAX_ITEMS,
            before=before,
            loaded=[_loaded_row(item, numbers) for item in items],
        )
        word, *number = await self._connection.run(command)
        return outcome(word, get_args(scripts.LoadOutcome)), int(number[0]) if number else 0

    async def finish(self, run: str, name: str, curriculum_id: str, old: str | None) -> scripts.FinishOutcome:
        """Give a loaded curriculum its name, and delete the one that had the name. Safe to repeat.

        Returns:
            ``loaded``; or, with nothing changed, ``gone`` (nobody loads it any more), ``outdated`` (another has the
            name by now) or ``crowded`` (the run has `MAX_CURRICULA`).
        """
        keys = RunKeys(run)
        command = scripts.finish_loading(
            keys,
            former_keys=[] if old is None else CurriculumKeys(keys, old).own(),
            name=name,
            curriculum_id=curriculum_id,
            former_id=old,
            most_curricula=MAX_CURRICULA,
        )
        (word,) = await self._connection.run(command)
        return outcome(word, get_args(scripts.FinishOutcome))

    async def drop(self, run: str, curriculum_id: str, until_ms: int | None = None) -> None:
        """Delete a curriculum that is being loaded; with ``until_ms``, only if it made no progress after that."""
        keys = RunKeys(run)
        own = CurriculumKeys(keys, curriculum_id).own()
        command = scripts.drop_loading(keys, deleted_keys=own, curriculum_id=curriculum_id, until_ms=until_ms)
        await self._connection.run(command)

    async def stranded(self, run: str, until_ms: int) -> list[str]:
        """Read the ids of curricula whose load made no progress after a run clock."""
        found = await self._connection.call("ZRANGEBYSCORE", RunKeys(run).curricula_loading, "-inf", until_ms)
        return [own.decode() for own in found]


def _loaded_row(item: SavedItem, numbers: Mapping[str, int]) -> scripts.LoadedRow:
    prior = item.estimate.prior
    return scripts.LoadedRow(
        key=item.key,
        category=numbers[item.category],
        prior=NONE if prior is None else repr(prior),
        metadata=item.metadata,
        estimate=packed_estimate(item.estimate, item.history),
        drawn=item.estimate.drawn,
        in_flight_ms=item.in_flight_ms or "",
    )
