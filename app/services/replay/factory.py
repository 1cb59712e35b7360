"""Build the use cases of the replay buffer."""

from dataclasses import dataclass

from app.services.replay.buffer import ReplayBuffers
from app.services.replay.cleanup import ReplayCleanup
from app.services.replay.eviction import ReplayEviction
from app.services.replay.grid import ReplayGrids
from app.services.replay.groups import GroupInserter
from app.services.replay.insertion import ReplayInsertion
from app.services.replay.mixing import ReplayMixing
from app.services.replay.reservations import UseReservations
from app.services.replay.samples import ReplaySamples
from app.services.replay.sampling import ChunkSampling
from app.services.replay.snapshots import ReplaySnapshots
from app.services.stores import Stores


@dataclass(frozen=True, slots=True)
class ReplayServices:
    """The use cases of the replay buffer."""

    buffers: ReplayBuffers
    grids: ReplayGrids
    insertion: ReplayInsertion
    samples: ReplaySamples
    snapshots: ReplaySnapshots
    group_inserter: GroupInserter
    mixing: ReplayMixing
    reservations: UseReservations
    cleanup: ReplayCleanup
    eviction: ReplayEviction

    @classmethod
    def create(cls, stores: Stores, worker: str) -> "ReplayServices":
        """Build the use cases; ``worker`` names this process in leases."""
        cleanup = ReplayCleanup(stores.replay)
        sampling = ChunkSampling(stores.replay, stores.samples, cleanup)
        group_inserter = GroupInserter(stores.group_insertions)
        reservations = UseReservations(stores.replay, stores.samples, stores.batches)
        insertion = ReplayInsertion(stores.replay, stores.listen)
        samples = ReplaySamples(stores.replay, stores.samples, sampling, stores.listen, worker)
        return cls(
            buffers=ReplayBuffers(
                stores.runs, stores.groups, stores.replay, insertion, group_inserter, reservations, samples, cleanup
            ),
            grids=ReplayGrids(stores.replay),
            insertion=insertion,
            samples=samples,
            snapshots=ReplaySnapshots(stores.runs, stores.snapshots, cleanup),
            group_inserter=group_inserter,
            mixing=ReplayMixing(stores.groups, stores.replay, stores.samples, sampling),
            reservations=reservations,
            cleanup=cleanup,
            eviction=ReplayEviction(stores.runs, stores.garbage, stores.replay),
        )
