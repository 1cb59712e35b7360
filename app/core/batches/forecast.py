"""When a batch should form, at the rates at which groups arrive now."""

from collections.abc import Mapping, Sequence

from app.core.model import Blocker, NotReady

WINDOW_MS = 60_000
"""How far back arrivals count, milliseconds of run clock."""

_SHORTAGES = (Blocker.TOO_FEW_SEQUENCES, Blocker.MINIMUM_SHORT)

Sample = tuple[int, Mapping[int, int]]
"""(run clock in ms, sequences each environment has sent in all)."""


def rates(samples: Sequence[Sample]) -> dict[int, float]:
    """Return each environment's arrival rate over the window, sequences per second.

    Args:
        samples: Looks at what environments have sent, oldest first.

    Returns:
        Nothing where there is no time between the oldest sample within the window and the newest.
    """
    if not samples:
        return {}
    now_ms, newest = samples[-1]
    oldest_ms, oldest = next(sample for sample in samples if sample[0] >= now_ms - WINDOW_MS)
    if now_ms <= oldest_ms:
        return {}
    seconds = (now_ms - oldest_ms) / 1000
    return {environment: max(0, total - oldest.get(environment, 0)) / seconds for environment, total in newest.items()}


def expected_s(not_ready: NotReady, arriving: Mapping[int, float]) -> float | None:
    """Return in how many seconds what is missing should have arrived, or None if that cannot be said.

    Args:
        not_ready: Why no batch can be had now.
        arriving: Sequences per second, by environment; one that is missing is not known to send any.
    """
    if not_ready.blocker not in _SHORTAGES:
        return None
    waits = [
        _wait(missing, arriving.get(environment, 0.0))
        for environment, missing in not_ready.missing_by_environment.items()
    ]
    waits.append(_wait(not_ready.missing_sequences, sum(arriving.values())))
    return None if None in waits else max(wait for wait in waits if wait is not None)


def _wait(missing: int, rate: float) -> float | None:
    if missing <= 0:
        return 0.0
    return missing / rate if rate > 0 else None
