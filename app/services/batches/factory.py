"""Build the use cases of batches."""

from dataclasses import dataclass
from functools import partial

from app.services.batches.atropos_delivery import AtroposDelivery
from app.services.batches.diagnostics import Diagnostics
from app.services.batches.dispatch import Dispatch
from app.services.batches.formation import BatchFormation
from app.services.batches.lease_taking import LeaseTaking
from app.services.batches.leases import BatchLeases
from app.services.batches.listing import BatchListing
from app.services.batches.recent_leases import RecentLeases
from app.services.batches.request import BatchRequest, BatchResult
from app.services.batches.retention import Retention
from app.services.batches.retrieval import Retrieval
from app.services.groups.factory import GroupServices
from app.services.history.recorder import HistoryRecorder
from app.services.long_poll import LongPoll
from app.services.ranks.lookahead import Lookahead
from app.services.ranks.sharding import BatchSharding
from app.services.replay.factory import ReplayServices
from app.services.runs.capacity import RunCapacity
from app.services.runs.warnings import RunWarnings
from app.services.stores import Stores
from app.services.timing import Timing
from app.services.turns import Turns


@dataclass(frozen=True, slots=True)
class BatchServices:
    """The use cases of batches."""

    dispatch: Dispatch
    formation: BatchFormation
    long_poll: LongPoll[BatchRequest, BatchResult]
    leases: BatchLeases
    listing: BatchListing
    retention: Retention
    diagnostics: Diagnostics
    atropos_delivery: AtroposDelivery

    @classmethod
    def create(
        cls,
        stores: Stores,
        groups: GroupServices,
        replay: ReplayServices,
        capacity: RunCapacity,
        warnings: RunWarnings,
        timing: Timing,
        worker: str,
        recorder: HistoryRecorder,
    ) -> "BatchServices":
        """Build the use cases; ``worker`` names this process in leases."""
        retention = Retention(stores.runs, stores.garbage, stores.batches, replay.group_inserter, replay.reservations)
        atropos_delivery = AtroposDelivery(stores.batches, retention, worker)
        retrieval = Retrieval(stores.groups)
        sharding, recent = BatchSharding(retrieval), RecentLeases()
        taking = LeaseTaking(atropos_delivery, recent)
        formation = BatchFormation(
            stores.runs,
            stores.batches,
            retrieval,
            sharding,
            Lookahead(stores.groups),
            replay.mixing,
            replay.reservations,
            taking,
            groups.arrivals,
            timing,
            recorder,
        )
        dispatch = Dispatch(
            stores.processes,
            stores.runs,
            stores.batches,
            retrieval,
            sharding,
            formation,
            replay.reservations,
            taking,
            atropos_delivery,
            Turns(stores.turns, worker),
        )
        return cls(
            dispatch=dispatch,
            formation=formation,
            long_poll=dispatch.long_poll(partial(stores.listen, listener=worker)),
            listing=BatchListing(stores.runs, stores.batches, stores.batch_records),
            leases=BatchLeases(
                stores.garbage, stores.batches, retention, replay.reservations, groups.staleness, recent
            ),
            retention=retention,
            diagnostics=Diagnostics(stores.runs, dispatch, groups.arrivals, stores.replay, capacity, warnings),
            atropos_delivery=atropos_delivery,
        )
