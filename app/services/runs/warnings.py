"""Find problems that cannot solve themselves in a run. Replies repeat a warning while it lasts; the log has it once."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.core.environments.reused_readings import reuse_for_s
from app.core.model import LaneId
from app.core.runs.view import RunView
from app.core.runs.warnings import RunWarning, WarningKind, warnings_of
from app.events import RunWarned, emit
from app.store.runs.store import RunStore
from lachesis.wire.errors import LachesisError

_MOST_LANES = 1024  # remembered per run: groups of ever new sizes do not cause a check each time


@dataclass(frozen=True, slots=True)
class _WarningCheck:
    """The result of a check of a run.

    Attributes:
        epoch: The run's epoch then; another epoch means other environments or settings.
        again_s: Event loop time from which a submission may check again, so that a run with many environments is not
            checked at each join.
        lanes: The lanes it had then, and those that got groups since.
        warnings: The warnings found.
    """

    epoch: int
    again_s: float
    lanes: frozenset[LaneId]
    warnings: tuple[RunWarning, ...]

    def is_of(self, epoch: int, lanes: Sequence[LaneId]) -> bool:
        """Return whether nothing is new: these lanes are known, and the run's settings are the same."""
        return self.epoch == epoch and (len(self.lanes) >= _MOST_LANES or self.lanes.issuperset(lanes))

    def kinds(self) -> set[WarningKind]:
        """Return the kinds of warnings."""
        return {warning.kind for warning in self.warnings}


class RunWarnings:
    """Checks runs only when something new arrives, so that other submissions cost nothing more."""

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs
        self._looks: dict[str, _WarningCheck] = {}
        self._looking: set[str] = set()
        self._logged: defaultdict[str, set[WarningKind]] = defaultdict(set)

    def of(self, run: str) -> tuple[RunWarning, ...]:
        """Return the warnings of the last check."""
        look = self._looks.get(run)
        return () if look is None else look.warnings

    def tried(self, view: RunView) -> tuple[RunWarning, ...]:
        """Return the warnings of a run as it is in ``view``, without remembering them."""
        return warnings_of(view)

    def note(self, run: str, view: RunView, lanes: Collection[LaneId] = ()) -> tuple[RunWarning, ...]:
        """Find the warnings of a run, and log each kind the first time.

        Args:
            run: The run's name.
            view: The run.
            lanes: Lanes that just got groups. These may have left again.
        """
        found = warnings_of(view)
        before = self._looks.get(run)
        known = before.lanes if before is not None and before.epoch == view.epoch else frozenset()
        again_s = asyncio.get_running_loop().time() + reuse_for_s(len(view.environments), len(view.lanes))
        self._looks[run] = _WarningCheck(view.epoch, again_s, known.union(view.lanes, lanes), found)
        for warning in found:
            if warning.kind not in self._logged[run]:
                self._logged[run].add(warning.kind)
                emit(RunWarned(run=run, kind=warning.kind.value, detail=warning.detail))
        return found

    async def admitted(self, run: str, epoch: int, lanes: Sequence[LaneId], *, too_long: bool) -> None:
        """Check a run that has admitted groups, if their lanes or its settings are new.

        Args:
            run: The run's name.
            epoch: The run's epoch by which the groups were placed.
            lanes: Their lanes.
            too_long: Whether some were dropped for the length of a sequence.
        """
        look = self._looks.get(run)
        known = look is not None and (not too_long or WarningKind.SEQUENCES_TOO_LONG in look.kinds())
        if (look is not None and known and look.is_of(epoch, lanes)) or run in self._looking:
            return
        if look is not None and asyncio.get_running_loop().time() < look.again_s:
            return  # a later submission checks
        self._looking.add(run)
        try:
            self.note(run, await self._runs.view(run), lanes)
        except LachesisError:
            pass  # the groups are stored, so the answer is a success; the next submission checks again
        finally:
            self._looking.discard(run)

    def keep_only(self, runs: Collection[str]) -> None:
        """Forget all runs but these."""
        self._looks = {run: look for run, look in self._looks.items() if run in runs}
        for run in self._logged.keys() - set(runs):
            del self._logged[run]
