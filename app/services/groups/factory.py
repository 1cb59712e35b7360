"""Build the use cases of groups."""

from dataclasses import dataclass

from app.services.groups.admission import Admission
from app.services.groups.annotations import GroupAnnotator
from app.services.groups.arrivals import Arrivals
from app.services.groups.atropos_ingest import AtroposIngest
from app.services.groups.commit import GroupCommit
from app.services.groups.commit_lock import CommitLock
from app.services.groups.contents import GroupContentReader
from app.services.groups.deletion import GroupDeletion
from app.services.groups.history import GroupHistories
from app.services.groups.listing import GroupListing
from app.services.groups.native_ingest import NativeIngest
from app.services.groups.staleness import Staleness
from app.services.history.recorder import HistoryRecorder
from app.services.replay.eviction import ReplayEviction
from app.services.runs.capacity import RunCapacity
from app.services.runs.warnings import RunWarnings
from app.services.stores import Stores


@dataclass(frozen=True, slots=True)
class GroupServices:
    """The use cases of groups."""

    native: NativeIngest
    atropos: AtroposIngest
    admission: Admission
    histories: GroupHistories
    contents: GroupContentReader
    annotations: GroupAnnotator
    deletion: GroupDeletion
    listing: GroupListing
    staleness: Staleness
    arrivals: Arrivals

    @classmethod
    def create(
        cls,
        stores: Stores,
        capacity: RunCapacity,
        warnings: RunWarnings,
        eviction: ReplayEviction,
        recorder: HistoryRecorder,
        commit_lock: CommitLock | None,
    ) -> "GroupServices":
        """Build the use cases on the stores. ``commit_lock``: what this process shares with others that commit."""
        commits = GroupCommit(stores.groups, commit_lock)
        admission = Admission(stores.runs, commits, capacity, eviction, warnings, recorder)
        histories = GroupHistories(
            stores.runs, stores.groups, stores.known_groups, stores.listed_groups, stores.batches
        )
        contents = GroupContentReader(stores.groups, stores.listed_groups, histories)
        return cls(
            native=NativeIngest(stores.known_groups, admission),
            atropos=AtroposIngest(stores.runs, stores.groups, admission),
            admission=admission,
            histories=histories,
            contents=contents,
            annotations=GroupAnnotator(stores.annotations, contents, histories),
            deletion=GroupDeletion(stores.runs, stores.groups, stores.listed_groups, histories),
            listing=GroupListing(stores.runs, stores.groups, stores.listed_groups, stores.batches),
            staleness=Staleness(stores.runs, stores.groups),
            arrivals=Arrivals(),
        )
