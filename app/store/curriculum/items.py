"""Register, observe, hand out and look up the items of a curriculum in Redis."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.core.curriculum.estimates import Estimate, EstimateUpdate, LeakyUpdate
from app.core.curriculum.indexes import ItemIndex
from app.store.curriculum.entries import (
    MAX_CATEGORIES,
    MAX_ITEMS,
    NewItem,
    StoredItem,
    packed_change,
    parse_estimate,
    parse_item,
)
from app.store.curriculum.store import CurriculumView
from app.store.redis.client import RedisClient
from app.store.redis.keys import CurriculumPart, RunKeys
from app.store.redis.pipeline import Argument, Command
from app.store.redis.scripts import positional

_ITEM = "item"


class Place(NamedTuple):
    """Where an item is looked up: a rank in an order, in that of categories with the category's number."""

    item_index: ItemIndex
    rank: int
    category: int = 0


class SampleId(NamedTuple):
    """A sample by its number, an id unlike any other, and which attempt at it this is."""

    number: int
    sample_id: str
    attempt: int = 0


class Observation(NamedTuple):
    """What one group's rewards change of its item, and of the bandit's arm that the item belongs to."""

    key: str
    change: EstimateUpdate
    arm: LeakyUpdate


@dataclass(frozen=True, slots=True)
class Observed:
    """An item after its observations: its estimate, and its rank by mean reward, or -1 if it was deleted since."""

    estimate: Estimate
    rank: int


@dataclass(frozen=True, slots=True)
class Observations:
    """The result of observations. Those of a repeated request were counted before."""

    repeated: bool
    items_by_ease: int
    observed: tuple[Observed, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """Items that were handed out, each with the position of the place that named it; -1 if the sample is repeated.

    Attributes:
        repeated: Whether the request had them before; then these are all it has.
        sample: Id of the sample that has them.
        in_flight: Items in flight now, these included.
        free_ms: When the first of them is free, ms from now; 0 if there is none.
        items: In the order of their places.
    """

    repeated: bool
    sample: str
    in_flight: int
    free_ms: int
    items: tuple[tuple[int, StoredItem], ...]


class ItemStore:
    """Reads and changes a curriculum's items."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def register(self, view: CurriculumView, slices: Sequence[Sequence[NewItem]]) -> list[tuple[str, int]]:
        """Make items, or change those that are there; each slice all or none, in one round trip. Safe to repeat.

        Returns:
            For each slice ``registered`` and how many are new; or, with nothing of it changed, ``gone`` (there is no
            such curriculum any more), ``full`` or ``crowded`` (there would be too many items, or categories), and 0.
        """
        replies = await self._connection.pipeline([_registration(view, part, only_known=False) for part in slices])
        return [(word.decode(), rest[0] if rest else 0) for word, *rest in replies]

    async def change(self, view: CurriculumView, item: NewItem) -> str:
        """Change an item; returns ``registered``, ``missing``, or as `register`."""
        word, *_ = (await self._connection.pipeline([_registration(view, [item], only_known=True)]))[0]
        return str(word.decode())

    async def delete(self, view: CurriculumView, keys: Sequence[str]) -> int:
        """Forget items; returns how many there were."""
        return int(await self._connection.run(positional("delete_items", view.keys, list(keys))))

    async def observe(
        self, view: CurriculumView, request_id: str, remembered_ms: int, observations: Sequence[Observation], bins: int
    ) -> Observations | str:
        """Count observations, all or none, and once. Safe to repeat.

        Args:
            view: Which curriculum.
            request_id: What the request is recognised by.
            remembered_ms: For how long, run clock.
            observations: In the order they came.
            bins: How many bins are arms of the bandit; 0 if categories are.

        Returns:
            For each observation its item as it is now; or, with nothing changed, ``gone`` or ``full``, as `register`.
        """
        arguments: list[Argument] = [request_id, remembered_ms, MAX_ITEMS, bins]
        for key, change, arm in observations:
            arguments += [key, packed_change(change, arm)]
        word, *found = await self._connection.run(positional("observe_items", view.keys, arguments))
        if not found:
            return str(word.decode())
        pairs = zip(found[1::2], found[2::2], strict=True)
        observed = tuple(Observed(parse_estimate(packed), rank) for packed, rank in pairs)
        return Observations(word == b"repeated", found[0], observed)

    async def take(
        self,
        view: CurriculumView,
        sample: SampleId,
        wanted: int,
        places: Sequence[Place] | Sequence[str],
        orders: Sequence[ItemIndex],
        request_id: str = "",
    ) -> Taken | None:
        """Hand out the first ``wanted`` items at places, or of these keys, that nobody has. Safe to repeat.

        Args:
            view: Which curriculum.
            sample: Which sample has them; who has an item by it has it again.
            wanted: How many.
            places: Where they stand, or their keys.
            orders: In which of them their ranks are wanted.
            request_id: Names the request: another of its name has the same items, while they are in flight.

        Returns:
            None if the curriculum is gone.
        """
        ttl_ms = round(1000 * view.policy.in_flight_ttl_s)
        arguments: list[Argument] = [*sample, ttl_ms, wanted, " ".join(orders), request_id, *_placed(places)]
        word, *found = await self._connection.run(positional("take_items", view.keys, arguments))
        if word == b"gone":
            return None
        own, in_flight, free_ms, items = found
        told = tuple((place, _item(item)) for place, *item in items)
        return Taken(word == b"repeated", own.decode(), in_flight, free_ms, told)

    async def release(self, view: CurriculumView, sample_id: str, keys: Sequence[str]) -> int:
        """Let others have items of a sample that it still has; returns how many it had. Safe to repeat."""
        return int(await self._connection.run(positional("release_items", view.keys, [sample_id, *keys])))

    async def look(
        self,
        view: CurriculumView,
        places: Sequence[Place] | Sequence[str],
        orders: Sequence[ItemIndex] = (ItemIndex.MEAN_REWARD,),
        *,
        idle_only: bool = False,
    ) -> list[StoredItem | None]:
        """Look up the items at places, or of these keys; None where is none, or (``idle_only``) one in flight."""
        if not places:
            return []
        clock: Argument = view.clock_ms if idle_only else ""
        found = await self._connection.run(
            positional("find_items", view.keys, [" ".join(orders), clock, *_placed(places)])
        )
        return [_item(item) if item else None for item in found]

    async def keys_by_rank(
        self, view: CurriculumView, index: ItemIndex, first: int, last: int, *, descending: bool
    ) -> list[str]:
        """Read the keys of the items from one rank to another, which is included, of an order."""
        backwards: list[Argument] = ["REV"] if descending else []
        found = await self._connection.call("ZRANGE", self._part(view, index.value), first, last, *backwards)
        return [key.decode() for key in found]

    async def flight(self, view: CurriculumView, key: str) -> tuple[int, int]:
        """Read which sample last handed out a seen item, and for how many ms others do not get an item."""
        drawn, until_ms = await self._connection.pipeline(
            [("ZSCORE", self._part(view, part), key) for part in ("drawn", "in_flight")]
        )
        return int(drawn or 0), max(0, int(until_ms or 0) - view.clock_ms)

    def _part(self, view: CurriculumView, part: CurriculumPart) -> str:
        return RunKeys(view.run).curriculum_part(view.curriculum_id, part)


def _registration(view: CurriculumView, items: Sequence[NewItem], *, only_known: bool) -> Command:
    arguments: list[Argument] = [MAX_ITEMS, MAX_CATEGORIES, int(only_known)]
    for item in items:
        category = "" if item.category is None else f"={item.category}" if item.category else "-"
        prior = "" if item.prior is None else repr(item.prior) if item.prior == item.prior else "-"
        metadata = "" if item.metadata is None else item.metadata or "-"
        arguments += [item.key, category, prior, metadata]
    return positional("register_items", view.keys, arguments)


def _placed(places: Sequence[Place] | Sequence[str]) -> list[Argument]:
    arguments: list[Any] = []
    for place in places:
        if isinstance(place, str):
            arguments += [_ITEM, place, ""]
        else:
            arguments += [place.item_index.value, place.category, place.rank]
    return arguments


def _item(told: Sequence[Any]) -> StoredItem:
    key, entry, packed, *ranks = told
    return parse_item(key, entry, packed, ranks)
