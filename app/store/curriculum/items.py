"""Register, observe, hand out and look up the items of a curriculum in Redis."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np

from app.core.curriculum.estimates import Estimate, EstimateUpdate, Evidence, LeakyUpdate
from app.core.curriculum.indexes import ItemIndex
from app.store.curriculum import scripts
from app.store.curriculum.entries import (
    MAX_ITEMS,
    MAX_REQUESTS,
    ItemWrite,
    StoredItem,
    packed_change,
    parse_estimate,
    parse_item,
    parse_prior,
    pass_counts,
)
from app.store.curriculum.store import CurriculumView
from app.store.redis.client import RedisClient
from app.store.redis.keys import NONE
from app.store.redis.pipeline import Command
from app.store.redis.scripts import outcome
from lachesis.wire.curricula import MAX_CATEGORIES

_AT_ONCE = 2000  # places; a script looks them up within 30 milliseconds
_ITEM = "item"
_MATCHED = 4  # last characters of a text: at each place of a key, MATCH may compare all that it looks for


class Place(NamedTuple):
    """A place to look up an item: a rank in an index. In the index of categories, also the category's number."""

    item_index: ItemIndex
    rank: int
    category: int = 0


class SampleId(NamedTuple):
    """A sample: its number, its unique id, and the number of this attempt."""

    number: int
    sample_id: str
    attempt: int = 0


class ItemObservation(NamedTuple):
    """The updates by one group's rewards: of its item, and of the item's arm of the bandit."""

    key: str
    change: EstimateUpdate
    arm: LeakyUpdate


@dataclass(frozen=True, slots=True)
class ObservedEstimate:
    """An item after its observations: its estimate, and its rank by mean reward, or -1 if it was deleted since."""

    estimate: Estimate
    rank: int


@dataclass(frozen=True, slots=True)
class ObservationResult:
    """The result of observations.

    Attributes:
        repeated: Whether the request was counted before.
        ranked_items: How many items are ranked by mean reward.
        observed: The items after their observations.
    """

    repeated: bool
    ranked_items: int
    observed: tuple[ObservedEstimate, ...]


@dataclass(frozen=True, slots=True)
class TakenItems:
    """Items that were handed out, each with the position of the place that named it; -1 if the sample is repeated.

    Attributes:
        repeated: Whether the request got them before. Then these are all of its items.
        sample: Id of the sample that has them.
        in_flight: Items in flight now, these included.
        free_ms: Time until the first of these is free again, milliseconds; 0 if none is in flight.
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

    async def register(
        self, view: CurriculumView, slices: Sequence[Sequence[ItemWrite]]
    ) -> list[tuple[scripts.RegisterOutcome, int]]:
        """Create items or change existing ones, each slice all or none, in one round trip. Safe to repeat.

        Returns:
            For each slice, ``registered`` and how many items are new. Or nothing of the slice has changed, and the
            result is ``gone`` (the curriculum was deleted), ``full`` (too many items) or ``crowded`` (too many
            categories), and 0.
        """
        replies = await self._connection.pipeline([_registration(view, part, only_known=False) for part in slices])
        known = get_args(scripts.RegisterOutcome)
        return [(outcome(word, known), rest[0] if rest else 0) for word, *rest in replies]

    async def change(self, view: CurriculumView, item: ItemWrite) -> scripts.ChangeOutcome:
        """Change an item; returns ``registered``, ``missing``, or as `register`."""
        word, *_ = (await self._connection.pipeline([_registration(view, [item], only_known=True)]))[0]
        return outcome(word, get_args(scripts.ChangeOutcome))

    async def delete(self, view: CurriculumView, keys: Sequence[str]) -> int:
        """Delete items, and return how many existed."""
        return int(await self._connection.run(scripts.delete_items(view.keys, item_keys=keys)))

    async def observe(
        self, view: CurriculumView, request_id: str, observations: Sequence[ItemObservation], bins: int
    ) -> ObservationResult | scripts.ObserveRefusal:
        """Count observations, all or none, and once. Safe to repeat.

        Args:
            view: The curriculum.
            request_id: The id by which a repeated request is recognised.
            observations: In the order they came.
            bins: How many bins are arms of the bandit; 0 if categories are.

        Returns:
            For each observation its item as it is now; or, with nothing changed, ``gone`` or ``full``, as `register`.
        """
        command = scripts.observe_items(
            view.keys,
            request_id=request_id,
            remembered_ms=view.memory_ms,
            most_requests=MAX_REQUESTS,
            most_items=MAX_ITEMS,
            bins=bins,
            observations=[scripts.ChangeRow(key, packed_change(change, arm)) for key, change, arm in observations],
        )
        word, *found = await self._connection.run(command)
        if not found:
            refusal: scripts.ObserveRefusal = outcome(word, get_args(scripts.ObserveRefusal))
            return refusal
        pairs = zip(found[1::2], found[2::2], strict=True)
        observed = tuple(ObservedEstimate(parse_estimate(packed), rank) for packed, rank in pairs)
        return ObservationResult(word == b"repeated", found[0], observed)

    async def take(
        self,
        view: CurriculumView,
        sample: SampleId,
        wanted: int,
        places: Sequence[Place] | Sequence[str],
        orders: Sequence[ItemIndex],
        request_id: str = "",
    ) -> TakenItems | None:
        """Hand out the first ``wanted`` items that are not in flight, by places or keys. Safe to repeat.

        Each `_AT_ONCE` places are looked up in one atomic step.

        Args:
            view: The curriculum.
            sample: The sample that gets them. Items that it already has are given again.
            wanted: How many to hand out.
            places: Their places or keys, in the order to try them.
            orders: The indexes in which their ranks are wanted.
            request_id: The id of the request. A repetition gets the same items while they are in flight.

        Returns:
            None if the curriculum is gone.
        """
        taken, found = None, list[tuple[int, StoredItem]]()
        for first in range(0, max(1, len(places)), _AT_ONCE):
            command = scripts.take_items(
                view.keys,
                number=sample.number,
                sample_id=sample.sample_id,
                attempt=f"{sample.attempt}.{first}",
                ttl_ms=round(1000 * view.settings.in_flight_ttl_s),
                wanted=wanted - len(found),
                orders=" ".join(orders),
                request_id=request_id or sample.sample_id,  # for a repetition of this command
                places=[_row(place) for place in places[first : first + _AT_ONCE]],
            )
            word, *reply = await self._connection.run(command)
            if word == b"gone":
                return None
            own, in_flight, free_ms, items = reply
            if word == b"repeated":  # these are all of its items
                found.clear()
            found += [(place + first if place >= 0 else place, _item(item)) for place, *item in items]
            taken = TakenItems(word == b"repeated", own.decode(), in_flight, free_ms, tuple(found))
            if taken.repeated or len(found) == wanted:
                break
        return taken

    async def release(self, view: CurriculumView, sample_id: str, keys: Sequence[str]) -> int:
        """Release items that a sample still holds, and return how many these were. Safe to repeat."""
        return int(await self._connection.run(scripts.release_items(view.keys, sample_id=sample_id, item_keys=keys)))

    async def look(
        self,
        view: CurriculumView,
        places: Sequence[Place] | Sequence[str],
        orders: Sequence[ItemIndex] = (ItemIndex.MEAN_REWARD,),
    ) -> list[StoredItem | None]:
        """Look up items by places or keys; None where there is no item."""
        if not places:
            return []
        command = scripts.find_items(
            view.keys,
            orders=" ".join(orders),
            places=[_row(place) for place in places],
        )
        found = await self._connection.run(command)
        return [_item(item) if item else None for item in found]

    async def candidates(
        self, view: CurriculumView, ranges: Sequence[tuple[int, int]], *, idle_only: bool
    ) -> tuple[list[str], Evidence]:
        """Read what posteriors of items are computed from.

        It takes no script: a script would copy each key and estimate several times. Items may change between the
        round trips, as they may before they are taken.

        Args:
            view: The curriculum.
            ranges: First and last ranks in the order of all items: by category, then by key.
            idle_only: Whether to leave out items in flight.

        Returns:
            The keys of the items, in the order of the ranges, and the evidence of each.
        """
        in_flight = view.keys.part("in_flight")
        reads: list[Command] = [("ZRANGE", view.keys.part("category"), *one) for one in ranges]
        *found, held = await self._connection.pipeline([*reads, ("ZCOUNT", in_flight, f"({view.clock_ms}", "+inf")])
        keys = [key for part in found for key in part]
        if not keys:
            return [], Evidence.of(())
        flights: list[Command] = [("ZMSCORE", in_flight, *keys)] if idle_only and held else []
        packed, *until = await self._connection.pipeline([("HMGET", view.keys.part("estimates"), *keys), *flights])
        passed, failed = pass_counts(packed)
        prior = np.full(len(keys), math.nan)
        if unseen := [n for n, estimate in enumerate(packed) if estimate is None]:
            entries = await self._connection.call("HMGET", view.keys.part("items"), *(keys[n] for n in unseen))
            prior[unseen] = [math.nan if entry is None else parse_prior(entry) for entry in entries]
        idle = [n for n in range(len(keys)) if not until or (until[0][n] or 0) <= view.clock_ms]
        return [keys[n].decode() for n in idle], Evidence(passed[idle], failed[idle], prior[idle])

    async def keys_by_rank(self, view: CurriculumView, index: ItemIndex, ranks: range) -> list[str]:
        """Read the keys of the items with these ranks of an index, in ascending order. ``ranks`` is not empty."""
        found = await self._connection.call("ZRANGE", view.keys.part(index.value), ranks.start, ranks.stop - 1)
        return [key.decode() for key in found]

    async def search(self, view: CurriculumView, text: str, cursor: int, about: int) -> tuple[int, list[str]]:
        """Look through about so many items for keys that contain a text, in no order.

        Returns:
            Where to go on, 0 at the end; and the keys. Items that move in the meantime may come again.
        """
        pattern = "*" + re.sub(r"([][*?\\])", r"\\\1", text[-_MATCHED:]) + "*"
        key = view.keys.part("category")
        following, found = await self._connection.call("ZSCAN", key, cursor, "MATCH", pattern, "COUNT", about)
        keys = [name.decode() for name in found[::2]]
        return int(following), [key for key in keys if text in key]

    async def flight(self, view: CurriculumView, key: str) -> tuple[int, int]:
        """Read the number of the sample that last handed out an item, and for how many ms others do not get it."""
        drawn, until_ms = await self._connection.pipeline(
            [("ZSCORE", view.keys.part(part), key) for part in ("drawn", "in_flight")]
        )
        return int(drawn or 0), max(0, int(until_ms or 0) - view.clock_ms)


def _registration(view: CurriculumView, items: Sequence[ItemWrite], *, only_known: bool) -> Command:
    return scripts.register_items(
        view.keys,
        most_items=MAX_ITEMS,
        most_categories=MAX_CATEGORIES,
        only_known=only_known,
        new_items=[_item_row(item) for item in items],
    )


def _item_row(item: ItemWrite) -> scripts.ItemRow:
    return scripts.ItemRow(
        key=item.key,
        category="" if item.category is None else f"={item.category}" if item.category else NONE,
        prior="" if item.prior is None else repr(item.prior) if item.prior == item.prior else NONE,
        metadata="" if item.metadata is None else item.metadata or NONE,
    )


def _row(place: Place | str) -> scripts.PlaceRow:
    if isinstance(place, str):
        return scripts.PlaceRow(_ITEM, place, "")
    return scripts.PlaceRow(place.item_index.value, place.category, place.rank)


def _item(row: Sequence[Any]) -> StoredItem:
    key, entry, packed, *ranks = row
    return parse_item(key, entry, packed, ranks)
