"""The audit trail: who changed or removed what, when, from where, and with which result."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from app.events import happened
from app.store.access.audit import AuditStore, StoredEntry
from lachesis.wire.access import masked
from lachesis.wire.errors import ServiceError, StoreFull, StoreUnavailable

_LOOKED_AT = 1000  # entries that one page reads at most
_AT_ONCE = 200
_OWN_SHARE, _LEAST_OWN = 0.01, 20  # share of the trail, and least number, of entries that a sender gets in an hour
_MOST_CHARACTERS = 200  # of each text
_MOST_EVENTS = 20

log = logging.getLogger("lachesis.audit")


@dataclass(frozen=True, slots=True)
class RequestKind:
    """How requests are grouped. After a number of entries in an hour, requests of the same kind in a run share one
    entry.

    Attributes:
        sender: Who sends them.
        action: A word for what they do.
        together: Whether even the first ones share an entry, because normal use sends many.
    """

    sender: str
    action: str
    together: bool = False


@dataclass(slots=True)
class Result:
    """The result of a request: the status and, if it was refused, the code of the error."""

    status: int = 500
    code: str | None = None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Entries, newest first.

    Attributes:
        entries: The entries.
        next_before: The id to read on from; None if there are no older entries.
    """

    entries: Sequence[StoredEntry]
    next_before: str | None


class AuditTrail:
    """Keeps the newest entries in Redis, and writes all to the log.

    Args:
        store: The entries.
        most: About how many entries to keep.
    """

    def __init__(self, store: AuditStore, most: int) -> None:
        self._store = store
        self._most = most
        self._own = max(_LEAST_OWN, int(most * _OWN_SHARE))

    @asynccontextmanager
    async def entry(
        self, who: Mapping[str, str], method: str, path: str, run: str | None, kind: RequestKind
    ) -> AsyncIterator[Result]:
        """Record what the block does, with its result and its events.

        Args:
            who: Describes the sender.
            method, path: The request.
            run: Its run. None means that of its first event, if it has one.
            kind: Which requests it belongs to.
        """
        changes: list[dict[str, Any]] = []
        happened.set(changes)
        result = Result()
        try:
            yield result
        except ServiceError as error:
            result.status, result.code = error.status, error.code
            raise
        finally:
            facts = {
                "run": run or next((change["run"] for change in changes if "run" in change), None),
                "method": method,
                "path": path,
                "status": result.status,
                "code": result.code,
                "changes": changes[:_MOST_EVENTS] or None,
            }
            refused = 400 <= result.status < 500 or result.status == StoreFull.status
            is_down = result.code == StoreUnavailable.code
            known = dict(who) | {name: value for name, value in facts.items() if value is not None}
            entry = _clean(known)
            log.info("audit", extra={"fields": entry})
            # Entries of refused requests would displace others. If Redis is down, its client has waited for it already.
            if changes or not (refused or is_down):
                await self._store_entry(entry, kind, f"{kind.action}:{run or ''}")

    async def _store_entry(self, facts: Mapping[str, Any], kind: RequestKind, action: str) -> None:
        """Add an entry to the trail. If Redis does not answer, the log alone has it: what was done stays."""
        try:
            await self._store.add(facts, self._most, 0 if kind.together else self._own, kind.sender, action)
        except ServiceError as error:
            log.error("the audit trail lacks the entry above: %s", error)

    async def page(
        self, limit: int, before: str | None, wanted: Callable[[Mapping[str, Any]], bool], *, to_the_end: bool
    ) -> AuditPage:
        """Read the newest wanted entries that are older than ``before``.

        Args:
            limit: Maximum number of entries.
            before: An id.
            wanted: Whether the reader may see an entry and asked for it.
            to_the_end: Whether to look at all entries, so that `AuditPage.next_before` is the id of a wanted one. If
                not, a call looks at 1,000 entries, so a page may have fewer than ``limit``, even none.
        """
        found: list[StoredEntry] = []
        looked_at = 0
        while to_the_end or looked_at < _LOOKED_AT:
            read = await self._store.before(before, _AT_ONCE)
            looked_at += len(read)
            for entry in read:
                before = entry.entry_id
                if wanted(entry.facts):
                    found.append(entry)
                    if len(found) == limit:
                        return AuditPage(found, before)
            if len(read) < _AT_ONCE:
                return AuditPage(found, None)
        return AuditPage(found, before)


def _clean(value: Any) -> Any:
    """Return a value with each text in it cut, and without tokens."""
    if isinstance(value, str):
        return masked(value)[:_MOST_CHARACTERS]
    if isinstance(value, Mapping):
        return {_clean(name): _clean(of) for name, of in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value]
    return value
