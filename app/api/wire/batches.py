"""Map batches of a listing to the models of replies."""

from collections.abc import Iterable, Sequence

from app.core.batches.leases import Lease, LeasedGroup, seconds_left
from app.core.ranks.sharding import Sharding
from app.services.batches.listing import BatchPage
from app.store.batches.records import RecordedBatch
from lachesis.wire.batches import (
    BatchContents,
    BatchDetails,
    BatchState,
    GroupInBatch,
    LeasedBatch,
    LeasedBatches,
    ListedBatch,
    ListedBatches,
    RankLoads,
)
from lachesis.wire.states import BatchOutcome, SampleOutcome

STATE_OF_END: dict[BatchOutcome | SampleOutcome, BatchState] = {
    "acknowledged": "delivered",
    "given_back": "given_back",
    "discarded": "discarded",
}


def leased_batches(leases: Iterable[Lease], clock_ms: int) -> LeasedBatches:
    """Describe the batches of these leases, at this run clock."""
    return LeasedBatches(batches=[_leased(lease, clock_ms) for lease in leases])


def _leased(lease: Lease, clock_ms: int) -> LeasedBatch:
    sharding = lease.sharding
    return LeasedBatch(
        batch=lease.batch_id,
        step=lease.step,
        state=lease.state,
        delivery_count=lease.delivery_count,
        rewound=lease.rewound > 0,
        expires_s=seconds_left(lease, clock_ms),
        trainer=lease.trainer or None,
        groups=lease.groups,
        size=lease.size,
        replayed_groups=sum(portion.groups for portion in lease.replayed),
        world_size=None if sharding is None else sharding.spec.world_size,
        taken_by=[] if sharding is None else list(sharding.taken),
        acknowledged_by=[] if sharding is None else list(sharding.acknowledged),
    )


def shown_batches(page: BatchPage) -> ListedBatches:
    """Describe a page of batches."""
    return ListedBatches(batches=[_listed(one, page) for one in page.batches], cursor=page.cursor)


def shown_batch(page: BatchPage, groups: Sequence[LeasedGroup] | None) -> BatchDetails:
    """Describe a batch with its groups."""
    (batch,) = page.batches
    listed = None if groups is None else [_group(group, page) for group in groups]
    return BatchDetails(**dict(_listed(batch, page)), contents=listed)


def _listed(batch: RecordedBatch, page: BatchPage) -> ListedBatch:
    record, lease = batch.record, batch.lease
    replayed = {portion.environment: portion.groups for portion in record.replayed}
    return ListedBatch(
        batch=record.batch_id,
        step=record.step,
        state=_state(batch),
        formed_age_s=None if record.formed_ms is None else max(0, page.clock_ms - record.formed_ms) / 1000,
        relaxed=record.relaxed,
        rewound=lease is not None and lease.rewound > 0,
        delivery_count=None if lease is None else lease.delivery_count,
        trainer=(lease.trainer or None) if lease is not None else None,
        groups=sum(portion.groups for portion in record.contents),
        size=sum(portion.sequences for portion in record.contents),
        replayed_groups=sum(replayed.values()),
        environments=[
            BatchContents(
                environment=environment,
                name=None if environment is None else page.names.get(environment),
                groups=groups,
                sequences=sequences,
                replayed_groups=replayed.get(environment, 0),
            )
            for environment, groups, sequences in record.contents
        ],
        ranks=_ranks(batch),
    )


def _state(batch: RecordedBatch) -> BatchState:
    if batch.is_kept:
        return "kept"
    if batch.lease is not None:
        return batch.lease.state
    return "ended" if batch.end is None else STATE_OF_END[batch.end.outcome]


def _ranks(batch: RecordedBatch) -> RankLoads | None:
    ranks = batch.record.ranks
    if ranks is None:
        return None
    sharding = None if batch.lease is None else batch.lease.sharding
    return RankLoads(
        loads=list(ranks.loads),
        cost=ranks.cost,
        imbalance=ranks.imbalance,
        bound=ranks.bound,
        taken_by=[] if sharding is None else list(sharding.taken),
        acknowledged_by=[] if sharding is None else _acknowledged_by(sharding, batch.is_kept),
    )


def _acknowledged_by(sharding: Sharding, is_kept: bool) -> list[int]:
    """Return the ranks that have acknowledged. The lease of a kept batch is as it was before the last of them did."""
    return sorted({*sharding.acknowledged, *(sharding.awaited if is_kept else ())})


def _group(group: LeasedGroup, page: BatchPage) -> GroupInBatch:
    name = None if group.environment is None else page.names.get(group.environment)
    return GroupInBatch(
        id=group.given_id or group.group_id,
        environment=group.environment,
        name=name,
        size=group.size,
        policy_version=group.policy_version,
        replayed=group.replayed is not None,
    )
