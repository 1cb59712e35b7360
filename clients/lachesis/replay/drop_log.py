"""Says which fragments of a worker are not kept, and what to do about it: seldom, and never not at all."""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lachesis._transport.retry import Seldom
from lachesis.wire.fragments import FragmentOutcome, FragmentReceipt

_SAID_EVERY_S = 300.0

_KEPT = ("stored", "repeated")
_WHY: dict[FragmentOutcome, str] = {
    "late": "refused: late; their numbers were given up, as reorder_window_s was over",
    "old_session": "refused: old_session; a later one has begun: make the worker again to be in it",
    "future_session": "refused: future_session; it has not begun: begin_session begins it",
    "future_version": "refused: future_version; policy_version {highest} is later than the run's: set that first",
    "too_large": "refused: too_large; no chunk of them fits into max_bytes: send fewer steps in each",
    "stale": "dropped: stale; policy_version {lowest} is older than max_staleness lets in: sample with newer ones",
    "gap": "dropped: gap; fragments before or after them are missing, and the rest is too little for a chunk",
    "evicted": "dropped: evicted; max_chunks or max_bytes has no room for as many as came at once",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A fragment that is to be sent: its blob, the oldest and the newest policy version that sampled its steps."""

    blob: bytes
    lowest: int
    highest: int


class Losses:
    """The fragments of one worker that are not kept, by reason."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._counts: Counter[FragmentOutcome] = Counter()
        self._untold: dict[FragmentOutcome, Outgoing] = {}
        self._notices: defaultdict[FragmentOutcome, Seldom] = defaultdict(lambda: Seldom(_SAID_EVERY_S))

    def note(self, sent: Sequence[Outgoing], receipts: Sequence[FragmentReceipt]) -> None:
        """Learn what became of fragments, in their order; warn of a reason that is new, or was not named for long."""
        for fragment, receipt in zip(sent, receipts, strict=True):
            if receipt.status not in _KEPT:
                self._counts[receipt.status] += 1
                self._untold[receipt.status] = fragment
        now_s = time.monotonic()
        self._tell([reason for reason in self._untold if self._notices[reason].due(now_s)])

    def tell(self) -> None:
        """Warn of what has come since the last warning: there will be no other."""
        self._tell(list(self._untold))

    def _tell(self, reasons: Iterable[FragmentOutcome]) -> None:
        for reason in reasons:
            last, count = self._untold.pop(reason), self._counts[reason]
            why = _WHY[reason].format(lowest=last.lowest, highest=last.highest)
            log.warning("worker %s: %d fragment%s %s", self._worker, count, "s"[count == 1 :], why)
