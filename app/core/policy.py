"""What a run does with its groups and batches beyond their selection, as its owner set it."""

from dataclasses import dataclass
from enum import StrEnum


class FutureVersions(StrEnum):
    """What becomes of groups sampled by a version that is not in force: they count as of the one that is, or go."""

    RESTAMP = "restamp"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Policy:
    """What a run does with its groups and batches beyond their selection (`lachesis.wire.runs` explains each).

    The defaults are those of a run that nobody made under ``/v1``: a trainer of Atropos registered, no more.
    """

    max_staleness: int | None = None
    max_age_s: float | None = None
    future_versions: FutureVersions = FutureVersions.RESTAMP
    relax_after_s: float | None = None
    max_queued_groups: int | None = None
    max_queued_bytes: int | None = None
    lease_s: float = 600.0
    max_deliveries: int = 5
    keep_batches: int = 0
    keep_bytes: int = 0
    dedup_window_s: float = 3600.0
    lineage_s: float = 3600.0
    balance_window: int = 0
    max_delay_batches: int = 2
    archived: bool = False
