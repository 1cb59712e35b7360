"""Read whole curricula item by item, and write them under a new id until all items are there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core.curriculum.estimates import Estimate
from app.core.curriculum.state import CurriculumHeader
from app.store.curriculum.entries import (
    MAX_CURRICULA,
    MAX_ITEMS,
    packed_estimate,
    parse_item,
    parse_pairs,
    policy_text,
)
from app.store.curriculum.store import CurriculumView, named_arm
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Argument, Command
from app.store.redis.scripts import positional


@dataclass(frozen=True, slots=True)
class SavedItem:
    """An item as it is saved.

    Attributes:
        key: Its key.
        category: Its category, the empty string for none.
        metadata: JSON, or the empty string.
        estimate: What is known of it, all of it.
        history: Mean rewards of its last groups, oldest first.
        in_flight_ms: For how long it is not handed out to others; 0: it may be.
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
        """Read all of a curriculum but its items, and its categories in the order of their numbers."""
        keys, own = RunKeys(view.run), view.curriculum_id
        totals, arms, names = await self._connection.transact(
            [
                ("HMGET", keys.curriculum(own), "counter", "samples", "updates"),
                ("HGETALL", keys.curriculum_part(own, "arms")),
                ("HGETALL", keys.curriculum_part(own, "category_numbers")),
            ]
        )
        numbers = {int(number): name for name, number in parse_pairs(names).items()}
        values = {named_arm(key, numbers): value for key, value in parse_pairs(arms).items()}
        counter, samples, updates = (int(total or 0) for total in totals)
        return CurriculumHeader(view.policy, counter, samples, updates, values), [
            name for _, name in sorted(numbers.items())
        ]

    async def part(
        self, view: CurriculumView, categories: Sequence[str], cursor: int, about: int
    ) -> tuple[int, list[SavedItem]]:
        """Read about so many items in no order, each in one step, from a cursor, 0 at first; the next is 0 at the end.

        Items that exist all the time come at least once, or more often if many others are deleted during it.
        """
        keys, own = RunKeys(view.run), view.curriculum_id
        key = keys.curriculum_part(own, "items")
        following, entries = await self._connection.scan(key, cursor, about)
        found = list(entries)
        if not found:
            return following, []
        commands: list[Command] = [
            ("HMGET", keys.curriculum_part(own, "holders"), *found),
            ("HMGET", keys.curriculum_part(own, "items"), *found),
            ("HMGET", keys.curriculum_part(own, "estimates"), *found),
            ("ZMSCORE", keys.curriculum_part(own, "drawn"), *found),
            ("ZMSCORE", keys.curriculum_part(own, "in_flight"), *found),
        ]
        replies = await self._connection.transact(commands)
        names = ["", *categories]
        items = []
        for key, holder, entry, packed, drawn, until_ms in zip(found, *replies, strict=True):
            if entry is None:
                continue
            item = parse_item(key, entry, packed or b"")
            category = names[item.category] if item.category < len(names) else ""  # it is newer than the header
            left_ms = max(0, int(until_ms or 0) - view.clock_ms)
            number = int(holder.split()[0]) if drawn is None and holder is not None and left_ms else int(drawn or 0)
            estimate = replace(item.estimate, drawn=number)
            items.append(SavedItem(item.key, category, item.metadata, estimate, item.history, left_ms))
        return following, items

    async def begin(
        self, run: str, curriculum_id: str, header: CurriculumHeader, categories: Sequence[str], revision: str
    ) -> bool:
        """Make a curriculum that has no name yet; False if there is no such run. Safe to repeat."""
        keys = RunKeys(run)
        numbers = {name: number for number, name in enumerate(categories, 1)}
        arguments: list[Argument] = [curriculum_id, len(categories), *categories]
        arguments += ["config", policy_text(header.policy), "revision", revision, "counter", header.counter]
        arguments += ["samples", header.samples, "updates", header.updates]
        for arm, value in header.arms.items():
            kind, _, name = arm.partition(":")
            arguments += [f"arm {kind}:{numbers.get(name, 0) if kind == 'category' else name}", f"{value:.17g}"]
        places = [*keys.curriculum_keys(curriculum_id), keys.curricula_loading]
        return bool(await self._connection.run(positional("begin_loading", places, arguments)))

    async def load(
        self,
        run: str,
        curriculum_id: str,
        categories: Sequence[str],
        items: Sequence[SavedItem],
        before: int,
    ) -> tuple[str, int]:
        """Put items into it after ``before`` others, all or none. Safe to repeat.

        Returns:
            ``loaded``; or, with nothing changed, ``gone`` (the load has ended), ``full``, or ``twice``, with the index
            of the first item with a repeated key.
        """
        keys = RunKeys(run)
        numbers = {"": 0} | {name: number for number, name in enumerate(categories, 1)}
        arguments: list[Argument] = [curriculum_id, MAX_ITEMS, before]
        for item in items:
            prior = item.estimate.prior
            arguments += [item.key, numbers[item.category], "-" if prior is None else repr(prior), item.metadata]
            arguments += [packed_estimate(item.estimate, item.history), item.estimate.drawn, item.in_flight_ms or ""]
        places = [*keys.curriculum_keys(curriculum_id), keys.curricula_loading]
        word, *number = await self._connection.run(positional("load_items", places, arguments))
        return word.decode(), int(number[0]) if number else 0

    async def finish(self, run: str, name: str, curriculum_id: str, old: str | None) -> str:
        """Give it its name; the one that has it is forgotten. Safe to repeat.

        Returns:
            ``loaded``; or, with nothing changed, ``gone`` (nobody loads it any more), ``outdated`` (another has the
            name by now) or ``crowded`` (the run has `MAX_CURRICULA`).
        """
        keys = RunKeys(run)
        places = [keys.run, keys.curricula, keys.curricula_loading]
        places += [] if old is None else keys.curriculum_keys(old)[1:]
        arguments: list[Argument] = [name, curriculum_id, old or "", MAX_CURRICULA]
        (word,) = await self._connection.run(positional("finish_loading", places, arguments))
        return str(word.decode())

    async def drop(self, run: str, curriculum_id: str, until_ms: int | None = None) -> None:
        """Forget one that was being loaded; with ``until_ms``, unless it made progress after that run clock."""
        keys = RunKeys(run)
        places = [keys.curricula_loading, *keys.curriculum_keys(curriculum_id)[1:]]
        limit: Argument = "+inf" if until_ms is None else until_ms
        await self._connection.run(positional("drop_loading", places, [curriculum_id, limit]))

    async def stranded(self, run: str, until_ms: int) -> list[str]:
        """Read the ids of those that made no progress after a run clock."""
        found = await self._connection.call("ZRANGEBYSCORE", RunKeys(run).curricula_loading, "-inf", until_ms)
        return [own.decode() for own in found]
