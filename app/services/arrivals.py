"""What environments have sent lately, as this process saw it: for rates, from which nothing but forecasts is made."""

from collections import defaultdict, deque
from collections.abc import Collection

from app.core.forecast import WINDOW_MS, Sample, rates
from app.core.model import RunView

_MOST_SAMPLES = 64


class Arrivals:
    """Samples of each run, gathered whenever somebody looks for a batch."""

    def __init__(self) -> None:
        self._samples: defaultdict[str, deque[Sample]] = defaultdict(lambda: deque(maxlen=_MOST_SAMPLES))

    def note(self, run: str, view: RunView) -> None:
        """Remember what environments have sent by now; about once a second is enough."""
        samples = self._samples[run]
        if not samples or view.clock_ms - samples[-1][0] >= WINDOW_MS // _MOST_SAMPLES:
            samples.append((view.clock_ms, {key: sent.sequences for key, sent in view.sent.items()}))

    def rates(self, run: str) -> dict[int, float]:
        """Return each environment's arrival rate over the last minute, sequences per second, as far as it is known."""
        return rates(self._samples[run]) if run in self._samples else {}

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget what is remembered of runs that are no more."""
        for run in self._samples.keys() - set(runs):
            del self._samples[run]
