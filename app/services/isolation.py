"""Isolate failures: when one run fails, log it and continue with the others.

`isolated` is the boundary between runs, so it catches every exception, as the outermost handlers do. An outage of Redis
concerns all runs: it is raised.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.logs import LogBackoff
from lachesis.wire.errors import LachesisError, StoreRefused, StoreUnavailable, UnreadableRecord

T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0  # pause before another attempt
_LONGEST_SILENCE_S = 600.0

log = logging.getLogger("lachesis.maintenance")


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a run."""

    error: Exception

    @property
    def detail(self) -> str:
        """Return the failure in words."""
        return str(self.error) if isinstance(self.error, LachesisError) else repr(self.error)

    @property
    def trace(self) -> Exception | None:
        """Return the error to log with its traceback. None for errors of our own, whose message is enough."""
        return None if isinstance(self.error, LachesisError) else self.error


async def isolated(work: Awaitable[T]) -> T | Failure:
    """Do something for one run; return its failure, if any.

    Raises:
        StoreUnavailable: Redis is not available, which is not a failure of the run.
    """
    try:
        return await work
    except (StoreRefused, UnreadableRecord) as error:
        return Failure(error)
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary between runs: a bug in one must not stop the others
        return Failure(error)


async def for_each_run(
    do: Callable[[Sequence[str]], Awaitable[dict[str, T]]], runs: Sequence[str]
) -> tuple[dict[str, T], dict[str, Failure]]:
    """Do something for all runs together and, if that fails, for each by itself.

    Args:
        do: Takes names of runs and returns a result by name. It must be safe to repeat.
        runs: The names.

    Returns:
        The results and the failures, by the name of the run.

    Raises:
        StoreUnavailable: Redis is not available.
    """
    together = await isolated(do(runs))
    if not isinstance(together, Failure):
        return together, {}
    results: dict[str, T] = {}
    failures: dict[str, Failure] = {}
    for run in runs:
        alone = await isolated(do([run]))
        if isinstance(alone, Failure):
            failures[run] = alone
        else:
            results |= alone
    return results, failures


@dataclass(frozen=True, slots=True)
class RepeatedFailure:
    """A repeated failure of a run.

    Attributes:
        failure: The last failure.
        attempts: Failures in a row, ``>= 1``.
        since_s: Time of the first failure, on the monotonic clock.
        again_s: When to try again, on the same clock.
    """

    failure: Failure
    attempts: int
    since_s: float
    again_s: float


class RunFailures:
    """Repeated failures of runs in this process. The pause before another attempt doubles, up to a minute.

    Args:
        what: What fails, for the log: ``upkeep of a run``.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._troubles: dict[str, RepeatedFailure] = {}
        self._lines = LogBackoff(_FIRST_PAUSE_S, _LONGEST_SILENCE_S)

    def rests(self, run: str) -> bool:
        """Return whether to skip a run for now, because it failed recently."""
        trouble = self._troubles.get(run)
        return trouble is not None and time.monotonic() < trouble.again_s

    def failed(self, run: str, failure: Failure) -> None:
        """Record a failure of a run."""
        now, before = time.monotonic(), self._troubles.get(run)
        attempts = 1 if before is None else before.attempts + 1
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(attempts - 1, 10), _LONGEST_PAUSE_S)
        since_s = now if before is None else before.since_s
        self._troubles[run] = RepeatedFailure(failure, attempts, since_s, now + pause_s)
        if self._lines.is_due(run):
            fields = {"run": run, "detail": failure.detail, "attempts": attempts, "again_in_s": pause_s}
            log.error("%s fails", self._what, exc_info=failure.trace, extra={"fields": fields})

    def went_well(self, run: str) -> None:
        """Record a success of a run."""
        if self._troubles.pop(run, None) is not None:
            self._lines.forget(run)
            log.info("%s goes on", self._what, extra={"fields": {"run": run}})

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these."""
        for run in self._troubles.keys() - set(runs):
            del self._troubles[run]
            self._lines.forget(run)

    def of(self, run: str) -> RepeatedFailure | None:
        """Return the repeated failure of a run, if any."""
        return self._troubles.get(run)

    def failing_age_s(self, trouble: RepeatedFailure) -> float:
        """Return the seconds since the first failure."""
        return time.monotonic() - trouble.since_s
