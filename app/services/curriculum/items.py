"""Register, change, read and delete the items of curricula."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from app.core.curriculum import bins
from app.core.curriculum.estimates import posterior
from app.core.curriculum.indexes import ItemIndex
from app.events import CurriculumItemDeleted, emit, note
from app.services.curriculum.curricula import again_if_replaced, gone
from app.store.curriculum.entries import MAX_ITEMS, ItemWrite, StoredItem
from app.store.curriculum.items import ItemStore
from app.store.curriculum.scripts import RegisterRefusal
from app.store.curriculum.store import Census, CurriculumStore, CurriculumView
from lachesis.wire.curricula import MAX_CATEGORIES, ItemSorting
from lachesis.wire.errors import InvalidField, ItemNotFound

_AT_ONCE = 1000  # items; a script stores them within some milliseconds
_SCANNED = 2000  # items that are looked through in one go: Redis takes about 1 ms, or 10 if all keys are the longest
_SCANS = 50  # such steps for one page
_LAST_SCAN = 2**64 - 1  # Redis gives no larger cursor
_SLICES = 4  # slices sent at a time: one is built while another is stored


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """An item, with its bin, the name of its category, and the mean of the posterior of its pass rate."""

    stored: StoredItem
    bin: int
    category: str | None
    pass_rate: float


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Some items, and where the next page starts; None if this is the last page."""

    items: tuple[ItemFacts, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class InFlight:
    """When an item was last handed out: the sample's number, and the seconds until other samples can get it."""

    drawn: int
    in_flight_s: float


class CurriculumItems:
    """The items of curricula, for their owners and operators."""

    def __init__(self, store: CurriculumStore, items: ItemStore) -> None:
        self._store = store
        self._items = items

    @again_if_replaced
    async def register(self, run: str, name: str, items: Sequence[ItemWrite]) -> int:
        """Register new items and change existing ones; return how many are new. Safe to repeat.

        Raises:
            CurriculumNotFound: The run has none of this name.
            InvalidField: There would be too many items or categories. Earlier items of the request are registered.
        """
        view, registered = await self._store.existing(run, name), 0
        for first in range(0, len(items), _AT_ONCE * _SLICES):
            starts = range(first, min(len(items), first + _AT_ONCE * _SLICES), _AT_ONCE)
            slices = [items[start : start + _AT_ONCE] for start in starts]
            for start, (word, new) in zip(starts, await self._items.register(view, slices), strict=True):
                if word != "registered":
                    raise refused(view, word, ("items", start))
                registered += new
        note("curriculum items registered", {"run": run, "curriculum": name, "items": len(items), "new": registered})
        return registered

    @again_if_replaced
    async def change(self, run: str, name: str, item: ItemWrite) -> None:
        """Change an item.

        Raises:
            CurriculumNotFound: The run has none of this name.
            ItemNotFound: The curriculum has no such item.
            InvalidField: There would be too many categories.
        """
        view = await self._store.existing(run, name)
        word = await self._items.change(view, item)
        if word == "missing":
            raise _not_found(view, item.key)
        if word != "registered":
            raise refused(view, word, ("category",))
        note("curriculum item changed", {"run": run, "curriculum": name, "item": item.key})

    async def delete(self, run: str, name: str, key: str) -> None:
        """Delete an item.

        Raises:
            CurriculumNotFound: The run has none of this name.
            ItemNotFound: The curriculum has no such item.
        """
        view = await self._store.existing(run, name)
        if not await self._items.delete(view, [key]):
            raise _not_found(view, key)
        emit(CurriculumItemDeleted(run=run, curriculum=name, item=key))

    @again_if_replaced
    async def item(self, run: str, name: str, key: str) -> tuple[ItemFacts, InFlight]:
        """Return an item, and when it was last handed out.

        Raises:
            CurriculumNotFound: The run has none of this name.
            ItemNotFound: The curriculum has no such item.
        """
        view = await self._store.existing(run, name)
        (found,) = await self._facts(view, [key], await self._census(view))
        if found is None:
            raise _not_found(view, key)
        drawn, free_ms = await self._items.flight(view, key)
        return found, InFlight(drawn, free_ms / 1000)

    @again_if_replaced
    async def page(
        self,
        run: str,
        name: str,
        *,
        limit: int,
        cursor: str | None = None,
        sort: ItemSorting = "mean_reward",
        descending: bool = False,
        bin_: int | None = None,
    ) -> ItemPage:
        """Return one page of items.

        Sorted by mean reward, all items are listed, and those without observations and prior come last. Other orders
        list only items with observations. A page before the last may be short if items move in the meantime.

        Raises:
            CurriculumNotFound: The run has none of this name.
            InvalidField: There is no such bin, or a bin is asked for in another order than mean reward. Or the cursor
                is that of a search.
        """
        view = await self._store.existing(run, name)
        census = await self._census(view)
        n_bins, lengths = view.settings.n_bins, census.counts.length
        if bin_ is not None and (sort != "mean_reward" or bin_ >= n_bins):
            why = f"there are {n_bins} bins, from 0" if sort == "mean_reward" else "requires sort=mean_reward"
            raise InvalidField(why, ("query", "bin"))
        index = ItemIndex(sort)
        ranks = range(lengths(index)) if bin_ is None else bins.ranks_of(bin_, lengths(index), n_bins)
        sections = [(index, ranks)]
        if index is ItemIndex.MEAN_REWARD and bin_ in (None, bins.middle(n_bins)):
            sections.append((ItemIndex.UNSEEN, range(lengths(ItemIndex.UNSEEN))))
        if cursor is not None and not cursor.isdecimal():
            raise InvalidField("this is the cursor of a search", ("query", "cursor"))
        first = int(cursor or 0)
        keys: list[str] = []
        for section, wanted in _within(sections, first, limit, descending=descending):
            found = await self._items.keys_by_rank(view, section, wanted)
            keys += reversed(found) if descending else found
        following = first + limit
        more = following < sum(len(places) for _, places in sections)
        facts = await self._facts(view, keys, census)
        return ItemPage(tuple(filter(None, facts)), str(following) if more else None)

    @again_if_replaced
    async def search(self, run: str, name: str, text: str, limit: int, cursor: str | None = None) -> ItemPage:
        """Return a page of the items whose keys contain a text, in no order.

        A page comes from at most 100,000 items, so any page before the last may be short or empty. An item may come
        again if many others are registered in the meantime.

        Raises:
            CurriculumNotFound: The run has none of this name.
            InvalidField: The cursor does not come from an earlier page.
        """
        view = await self._store.existing(run, name)
        scan, passed = _place_in_scan(cursor)
        keys: dict[str, None] = {}
        following: str | None = None
        for _ in range(_SCANS):
            next_scan, found = await self._items.search(view, text, scan, _SCANNED)
            rest, room = found[passed:], limit - len(keys)
            keys |= dict.fromkeys(rest[:room])
            if len(rest) > room:
                following = f"{scan}-{passed + room}"
                break
            following = str(next_scan) if next_scan else None
            if following is None or len(keys) == limit:
                break
            scan, passed = next_scan, 0
        facts = await self._facts(view, list(keys), await self._census(view))
        return ItemPage(tuple(filter(None, facts)), following)

    async def _census(self, view: CurriculumView) -> Census:
        census = await self._store.census(view, by_category=False)
        if census is None:
            raise gone(view)
        return census

    async def _facts(self, view: CurriculumView, keys: Sequence[str], census: Census) -> list[ItemFacts | None]:
        named = {number: name for name, number in census.numbers.items()}
        found = await self._items.look(view, keys)
        ranked = census.counts.length(ItemIndex.MEAN_REWARD)

        def facts(item: StoredItem) -> ItemFacts:
            bin_ = bins.bin_at(item.ranks[0], ranked, view.settings.n_bins)
            return ItemFacts(item, bin_, named.get(item.category), posterior(view.settings, item.estimate).mean)

        return [None if item is None else facts(item) for item in found]


def refused(view: CurriculumView, word: RegisterRefusal, place: tuple[str | int, ...]) -> Exception:
    """Return why items were not registered."""
    match word:
        case "full":
            return InvalidField(f"a curriculum has at most {MAX_ITEMS} items", place)
        case "crowded":
            return InvalidField(f"a curriculum has at most {MAX_CATEGORIES} categories", place)
        case "gone":
            return gone(view)
        case _ as never:
            assert_never(never)


def _place_in_scan(cursor: str | None) -> tuple[int, int]:
    """Return the cursor of the store, and how many of the keys found there were on earlier pages."""
    scan, _, passed = (cursor or "0").partition("-")
    if int(scan) > _LAST_SCAN:
        raise InvalidField("this is not a cursor of an earlier page", ("query", "cursor"))
    return int(scan), int(passed or 0)


def _not_found(view: CurriculumView, key: str) -> ItemNotFound:
    return ItemNotFound(f"curriculum {view.name} has no item {key[:80]!r}")


def _within(
    sections: Sequence[tuple[ItemIndex, range]], first: int, limit: int, *, descending: bool
) -> Iterator[tuple[ItemIndex, range]]:
    """Return the parts of consecutive sections that lie on a page. Each counts from its end if ``descending``."""
    for index, places in sections:
        part = range(len(places))[first : first + limit]
        if part and descending:
            yield index, places[len(places) - part.stop : len(places) - part.start]
        elif part:
            yield index, places[part.start : part.stop]
        first, limit = max(0, first - len(places)), limit - len(part)
