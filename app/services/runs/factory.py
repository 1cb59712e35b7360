"""Build the use cases of runs."""

from dataclasses import dataclass

from app.services.access.rate_limits import RequestLimiter
from app.services.batches.factory import BatchServices
from app.services.groups.staleness import Staleness
from app.services.isolation import RunFailures
from app.services.replay.cleanup import ReplayCleanup
from app.services.runs.administration import RunAdministration
from app.services.runs.atropos import AtroposRuns
from app.services.runs.warnings import RunWarnings
from app.services.status import Status
from app.services.stores import Stores
from app.store.server.watch import StoreWatch


@dataclass(frozen=True, slots=True)
class RunServices:
    """The use cases of runs."""

    administration: RunAdministration
    atropos: AtroposRuns
    status: Status
    warnings: RunWarnings
    failures: RunFailures

    @classmethod
    def create(
        cls,
        stores: Stores,
        batches: BatchServices,
        staleness: Staleness,
        cleanup: ReplayCleanup,
        warnings: RunWarnings,
        limits: RequestLimiter,
        watch: StoreWatch,
    ) -> "RunServices":
        """Build the use cases; ``watch`` knows how Redis keeps its data."""
        failures = RunFailures("upkeep of a run")
        return cls(
            administration=RunAdministration(
                stores.runs, stores.damage, stores.garbage, batches.retention, staleness, cleanup, stores.replay, limits
            ),
            atropos=AtroposRuns(stores.runs, batches.retention),
            status=Status(
                stores.runs,
                stores.groups,
                stores.known_groups,
                stores.batch_records,
                stores.limits,
                batches.diagnostics,
                failures,
                watch,
            ),
            warnings=warnings,
            failures=failures,
        )
