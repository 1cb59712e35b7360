"""Log which fragments of a worker the service dropped, and what to do about it, at a limited rate."""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lachesis._transport.logs import RateLimitedLog
from lachesis.wire.fragments import FragmentReceipt
from lachesis.wire.states import FragmentOutcome

_LOG_PERIOD_S = 300.0

_KEPT = ("stored", "repeated")
_WHY: dict[FragmentOutcome, str] = {
    "late": "refused: late; their numbers were given up, as reorder_window_s was over",
    "old_session": "refused: old_session; a later one has begun: make the worker again to be in it",
    "future_session": "refused: future_session; it has not begun: begin_session begins it",
    "future_version": "refused: future_version; policy_version {highest} is later than the run's: set that first",
    "too_large": "refused: too_large; no chunk of them fits into max_bytes: send fewer steps in each",
    "stale": "dropped: stale; policy_version {lowest} is older than max_staleness lets in: sample with newer ones",
    "gap": "dropped: gap; fragments before or after them are missing, and the rest is too little for a chunk",
    "evicted": "dropped: evicted; max_chunks or max_bytes has no room for so many at once",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A fragment to send: its number, its blob, and the oldest and newest policy version that sampled its steps."""

    number: int
    blob: bytes
    lowest: int
    highest: int


class DropLog:
    """The fragments of one worker that were dropped, by reason."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._counts: Counter[FragmentOutcome] = Counter()
        self._unlogged: dict[FragmentOutcome, Outgoing] = {}
        self._limits: defaultdict[FragmentOutcome, RateLimitedLog] = defaultdict(lambda: RateLimitedLog(_LOG_PERIOD_S))

    def note(self, sent: Sequence[Outgoing], receipts: Sequence[FragmentReceipt]) -> None:
        """Record what happened to ``sent``, in order. Log a reason that is new, or was last logged a while ago."""
        for fragment, receipt in zip(sent, receipts, strict=True):
            if receipt.status not in _KEPT:
                self._counts[receipt.status] += 1
                self._unlogged[receipt.status] = fragment
        now_s = time.monotonic()
        self._log([reason for reason in self._unlogged if self._limits[reason].due(now_s)])

    def flush(self) -> None:
        """Log what was dropped since the last message."""
        self._log(list(self._unlogged))

    def _log(self, reasons: Iterable[FragmentOutcome]) -> None:
        for reason in reasons:
            last, count = self._unlogged.pop(reason), self._counts[reason]
            why = _WHY.get(reason, "not kept: {reason}")  # a newer service may have further reasons
            why = why.format(lowest=last.lowest, highest=last.highest, reason=reason)
            log.warning("worker %s: %d fragment%s %s", self._worker, count, "s"[count == 1 :], why)
