"""Measure recent arrivals as this process sees them: rates, used for forecasts only, and groups dropped by filters."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from app.core.batches.forecast import WINDOW_MS, rates
from app.core.groups.filters import Arrived, arrived_since
from app.core.runs.view import QueueView, RunView
from lachesis.wire.states import FILTERS

_MOST_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class _ArrivalCount:
    """The counts of a run at a time on its clock, milliseconds: sequences by environment, and groups.

    Attributes:
        gone: The environments that sent groups and send no more then.
        silent_s: For how long the sequences of each environment had not grown, as far as that was seen, seconds.
    """

    first_epoch: int
    clock_ms: int
    sequences: Mapping[int, int]
    arrived: Arrived
    gone: Collection[int]
    silent_s: Mapping[int, float]


class Arrivals:
    """The recent counts of each run, recorded whenever a batch is looked for."""

    def __init__(self) -> None:
        self._looks: defaultdict[str, deque[_ArrivalCount]] = defaultdict(lambda: deque(maxlen=_MOST_SAMPLES))

    def is_due(self, run: str, view: QueueView) -> bool:
        """Return whether the counts of a run should be recorded again: about once a second is enough."""
        looks = self._looks.get(run)
        return (
            not looks
            or looks[-1].first_epoch != view.first_epoch
            or view.clock_ms - looks[-1].clock_ms >= WINDOW_MS // _MOST_SAMPLES
        )

    def note(self, run: str, view: RunView) -> None:
        """Record the counts of a run, if that is due. Those of a deleted run of its name are forgotten."""
        if self.is_due(run, view):
            looks, gone = self._looks[run], view.gone_senders
            sequences = {key: sent.sequences for key, sent in view.sent.items()}
            if looks and looks[-1].first_epoch != view.first_epoch:
                looks.clear()
            silent_s = _silent_s(looks[-1] if looks else None, sequences, view.clock_ms)
            looks.append(_ArrivalCount(view.first_epoch, view.clock_ms, sequences, _arrived(view), gone, silent_s))

    def rates(self, run: str) -> dict[int, float]:
        """Return the known arrival rates of environments over at most the last minute, sequences per second."""
        return rates([(look.clock_ms, look.sequences) for look in self._looks[run]]) if run in self._looks else {}

    def silent_s(self, run: str) -> Mapping[int, float]:
        """Return for how long environments had sent nothing that is stored at the last look, seconds."""
        return self._looks[run][-1].silent_s if run in self._looks else {}

    def gone(self, run: str) -> Collection[int]:
        """Return the environments that sent groups and sent no more when the counts were last recorded."""
        return self._looks[run][-1].gone if run in self._looks else ()

    def lately(self, run: str, view: RunView) -> Arrived:
        """Return the groups that came in the last minute as this process saw them; all groups so far if none did."""
        return self._until(run, view.clock_ms, _arrived(view))

    def last_noted(self, run: str) -> Arrived:
        """Return what `lately` returned when the counts were last recorded. It reads nothing."""
        looks = self._looks.get(run)
        return self._until(run, looks[-1].clock_ms, looks[-1].arrived) if looks else Arrived()

    def _until(self, run: str, clock_ms: int, now: Arrived) -> Arrived:
        looks = self._looks.get(run, ())
        before = next((look.arrived for look in looks if look.clock_ms >= clock_ms - WINDOW_MS), now)
        lately = arrived_since(before, now)
        return lately if lately.groups else arrived_since(Arrived(), now)

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these."""
        for run in self._looks.keys() - set(runs):
            del self._looks[run]


def _silent_s(before: _ArrivalCount | None, sequences: Mapping[int, int], clock_ms: int) -> dict[int, float]:
    if before is None:
        return dict.fromkeys(sequences, 0.0)
    elapsed_s = (clock_ms - before.clock_ms) / 1000
    return {
        key: before.silent_s[key] + elapsed_s if total == before.sequences.get(key) else 0.0
        for key, total in sequences.items()
    }


def _arrived(view: RunView) -> Arrived:
    filtered, of = Counter[str](dict.fromkeys(FILTERS, 0)), Counter[int | None]()
    for (reason, environment), count in view.dropped.items():
        if reason in filtered:
            filtered[reason] += count
            of[environment] += count
    return Arrived(view.totals.accepted_groups, filtered, of)
