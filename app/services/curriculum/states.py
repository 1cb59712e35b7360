"""Save curricula while they run, and restore them all or nothing."""

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from app.core.curriculum.key_set import KeySet
from app.core.curriculum.state import CurriculumHeader
from app.events import CurriculumRestored, emit
from app.services.curriculum.curricula import too_many_curricula
from app.store.curriculum.entries import MAX_ITEMS
from app.store.curriculum.state import CurriculumStateStore, SavedItem
from app.store.curriculum.store import CurriculumStore
from app.store.redis.compare_and_swap import Attempts
from lachesis.wire.errors import CurriculumNotFound, InvalidField, RunNotFound

_AT_ONCE = 500
_FIRST_LINE = 2  # line of the first item in a document, after the header
_STRANDED_MS = 600_000  # an upload without new data for this long, run clock, is removed


@dataclass(frozen=True, slots=True)
class CurriculumDocument:
    """A saved curriculum, as a stream.

    Attributes:
        header: Everything except categories and items.
        categories: The categories in the order of their numbers.
        items: The items, some at a time.
    """

    header: CurriculumHeader
    categories: Sequence[str]
    items: AsyncIterator[Sequence[SavedItem]]


class CurriculumStates:
    """Saves and restores curricula."""

    def __init__(self, store: CurriculumStore, states: CurriculumStateStore) -> None:
        self._store = store
        self._states = states

    async def save(self, run: str, name: str) -> CurriculumDocument:
        """Read a curriculum, item by item.

        Each item is whole and comes once. A change made while items are read may be included or not.

        Raises:
            CurriculumNotFound: The run has none of this name, or it was removed while items were read.
        """
        view = await self._store.existing(run, name)
        header, categories = await self._states.header(view)

        async def items() -> AsyncIterator[Sequence[SavedItem]]:
            cursor, first, seen = 0, True, KeySet()
            while cursor or first:
                cursor, part = await self._states.part(view, categories, cursor, _AT_ONCE)
                first = False
                new = seen.add([item.key for item in part])
                yield [item for item, is_new in zip(part, new, strict=True) if is_new]
            if (await self._store.ids(run)).get(name) != view.curriculum_id:
                raise CurriculumNotFound(f"curriculum {name} of run {run} was removed while it was saved")

        return CurriculumDocument(header, categories, items())

    async def load(self, run: str, name: str, document: CurriculumDocument) -> None:
        """Restore or make a curriculum from a document. Nothing changes until the whole document has arrived.

        Raises:
            RunNotFound: There is no such run.
            InvalidField: The run has too many curricula, or the document has too many items, a repeated item, or an
                error.
            CurriculumNotFound: The run was reset in the meantime, or no data came for too long.
        """
        own = uuid.uuid4().hex
        if not await self._states.begin(run, own, document.header, document.categories, uuid.uuid4().hex):
            raise RunNotFound.named(run)
        try:
            before = 0
            async for items in document.items:
                for first in range(0, len(items), _AT_ONCE):
                    part = items[first : first + _AT_ONCE]
                    word, number = await self._states.load(run, own, document.categories, part, before)
                    if word == "twice":
                        where = ("line", _FIRST_LINE + before + number, "key")
                        raise InvalidField(f"item {part[number].key[:80]!r} is in the document twice", where)
                    _check(word, run, name)
                    before += len(part)
            attempts = Attempts("restore a curriculum", run)
            while attempts.again():
                old = (await self._store.ids(run)).get(name)
                finished = await self._states.finish(run, name, own, old)
                if finished != "outdated":
                    _check(finished, run, name)
                    emit(CurriculumRestored(run=run, curriculum=name, items=before))
                    return
        except BaseException:
            await self._states.drop(run, own)
            raise

    async def maintain(self, run: str, clock_ms: int) -> None:
        """Remove uploads that were never finished."""
        for own in await self._states.stranded(run, clock_ms - _STRANDED_MS):
            await self._states.drop(run, own, clock_ms - _STRANDED_MS)


def _check(word: Literal["loaded", "gone", "full", "crowded"], run: str, name: str) -> None:
    match word:
        case "loaded":
            return
        case "gone":
            raise CurriculumNotFound(
                f"the upload of curriculum {name} is gone: run {run} was reset, or the upload took too long. "
                "Send it again"
            )
        case "full":
            raise InvalidField(f"a curriculum has at most {MAX_ITEMS} items")
        case "crowded":
            raise too_many_curricula(run)
        case _ as never:
            assert_never(never)
