"""Forecast when a batch should form, at the rates at which groups arrive."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from app.core.model import NotReady
from lachesis.wire.blockers import Blocker

WINDOW_MS = 60_000
"""How far back arrivals count, milliseconds of run clock."""

_SHORTAGES = (Blocker.TOO_FEW_SEQUENCES, Blocker.MINIMUM_SHORT)

Sample = tuple[int, Mapping[int, int]]
"""(run clock in ms, sequences each environment has sent in all)."""


def rates(samples: Sequence[Sample]) -> dict[int, float]:
    """Return each environment's arrival rate over the window, sequences per second.

    Args:
        samples: What environments had sent at several times, oldest first.

    Returns:
        Rates by environment. Empty if no time passed between the oldest sample in the window and the newest.
    """
    if not samples:
        return {}
    now_ms, newest = samples[-1]
    oldest_ms, oldest = next(sample for sample in samples if sample[0] >= now_ms - WINDOW_MS)
    if now_ms <= oldest_ms:
        return {}
    seconds = (now_ms - oldest_ms) / 1000
    return {environment: max(0, total - oldest.get(environment, 0)) / seconds for environment, total in newest.items()}


def expected_s(
    not_ready: NotReady,
    arriving: Mapping[int, float],
    gone: Collection[int] = (),
    silent_s: Mapping[int, float] = MappingProxyType({}),
) -> float | None:
    """Return the seconds until the missing sequences should have arrived, or None if that is unknown.

    An environment that has sent nothing for longer than it usually needs is expected to be silent as long again.

    Args:
        not_ready: Why there is no batch now.
        arriving: Sequences per second, by environment. An environment without an entry is not known to send any.
        gone: The environments that send nothing, whatever they sent until now.
        silent_s: For how long environments have sent nothing, seconds.
    """
    if not_ready.blocker not in _SHORTAGES:
        return None
    left_out = {*gone, *not_ready.at_maximum}
    arriving = {key: rate for key, rate in arriving.items() if rate > 0 and key not in left_out}
    if not arriving or not not_ready.missing_by_environment.keys() <= arriving.keys():
        return None
    waits = [
        max(missing / arriving[key], silent_s.get(key, 0.0))
        for key, missing in not_ready.missing_by_environment.items()
    ]
    silent = min(silent_s.get(key, 0.0) for key in arriving)
    return max([*waits, not_ready.missing_sequences / sum(arriving.values()), silent])
