"""Build the replies with batches of the native API: slices of the stored blobs, column by column, or JSON."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import repeat

from fastapi import Request, Response

from app.api.codec.atropos_batch import comma_separated
from app.api.codec.group_content import in_json
from app.api.http.replies import WatchedReply, streamed, varied_by_accept, waiting_header
from app.core.batches.leases import LeasedGroup, Replayed
from app.core.groups.staleness import staleness
from app.core.model import NotReady
from app.services.batches.dispatch import Dispatch
from app.services.batches.request import OutgoingBatch
from lachesis.wire.batch_file import parts_of
from lachesis.wire.batches import BatchGroup, BatchInfo, ReplayedGroup
from lachesis.wire.blob import LENGTH_BYTES, Buffer
from lachesis.wire.columns import unpack
from lachesis.wire.errors import LachesisError
from lachesis.wire.groups import SAFETENSORS
from lachesis.wire.ranks import BalanceInfo, PackingInfo, ShardInfo

_IN_THREAD_HEADER_BYTES = 64 * 1024  # of all groups: some 200 with usual columns, fewer with many tensors
_IN_THREAD_BYTES = 4 * 1024 * 1024  # of groups whose compact columns may have to be expanded

log = logging.getLogger("lachesis.api")


def no_batch_reply(not_ready: NotReady, expected_s: float | None) -> Response:
    """Build the reply that says why there is no batch, and when to expect one."""
    headers = waiting_header(not_ready.blocker.value, not_ready.detail)
    if expected_s is not None:
        headers["Lachesis-Expected-S"] = f"{expected_s:.1f}"
    return Response(status_code=204, headers=headers)


class Layout:
    """Lay a batch out in binary while it is committed and Redis waits for the disk."""

    def __init__(self, run: str, *, compact: bool) -> None:
        """Lay batches of a run out. ``compact``: the reader knows compact columns."""
        self._run = run
        self._compact = compact
        self._batch: OutgoingBatch | None = None
        self._parts: asyncio.Task[list[Buffer]]

    def begin(self, batch: OutgoingBatch) -> None:
        """Start with a batch, at the next wait of the current task."""
        self._batch, self._parts = batch, asyncio.create_task(self._laid_out(batch))
        self._parts.add_done_callback(_looked_at)  # if the commit fails, this reads the result

    async def parts(self, batch: OutgoingBatch) -> list[Buffer]:
        """Return the parts of a batch."""
        if self._batch is not batch:
            self.begin(batch)
        return await self._parts

    async def _laid_out(self, batch: OutgoingBatch) -> list[Buffer]:
        return await batch_in_binary(info_of(self._run, batch), batch.payloads, compact=self._compact)


def _looked_at(task: "asyncio.Task[list[Buffer]]") -> None:
    if not task.cancelled():
        task.exception()


async def taken_batch_reply(
    request: Request, dispatch: Dispatch, run: str, batch: OutgoingBatch, layout: Layout | None
) -> Response:
    """Build the reply with a batch, in JSON without a layout. If the reply breaks off, the trainer may soon retry."""
    # Drop the payloads: the connection keeps the reply, and the reply keeps this, long after sending.
    remembered = batch.without_payloads()

    async def broke_off() -> None:
        try:
            await dispatch.let_expire(run, remembered)
        except LachesisError as error:
            log.warning("the reply with batch %s of run %s broke off: %s", remembered.lease.batch_id, run, error)

    lease = batch.lease
    headers = {"Lachesis-Batch": lease.batch_id, "Lachesis-Step": str(lease.step), "Vary": "Accept"}
    if lease.sharding is not None:
        headers["Lachesis-Imbalance"] = f"{lease.sharding.balance.imbalance:.4f}"
    try:
        if layout is not None:
            parts = await layout.parts(batch)
            return WatchedReply(parts, headers, broke_off=broke_off, status_code=201, media_type=SAFETENSORS)
        body, more = await streamed(request, _json(info_of(run, batch), batch.payloads))
    except BaseException:
        await broke_off()
        raise
    headers |= varied_by_accept(more)
    return WatchedReply(body, headers, broke_off=broke_off, status_code=201)


def info_of(run: str, batch: OutgoingBatch) -> BatchInfo:
    """Describe a batch without its columns."""
    view, lease = batch.view, batch.lease
    return BatchInfo(
        batch=lease.batch_id,
        run=run,
        step=lease.step,
        lease=lease.lease_id,
        lease_s=(lease.deadline_ms - view.clock_ms) / 1000,
        delivery_count=lease.delivery_count,
        relaxed=lease.relaxed,
        batch_size=lease.size,
        policy_version=view.policy_version,
        rewinds=view.rewinds,
        rewound=lease.rewound > 0,
        groups=list(map(_group, batch.groups, _parts(batch), repeat(batch))),
        shard=_shard(batch),
    )


def _parts(batch: OutgoingBatch) -> Iterable[tuple[int, ...] | None]:
    """Yield the sequences of each group that are sent; None for all."""
    if batch.shard is None:
        return repeat(None)
    pairs = zip(batch.groups, batch.shard.sequences, strict=True)
    return (None if len(sequences) == group.size else sequences for group, sequences in pairs)


def _shard(batch: OutgoingBatch) -> ShardInfo | None:
    sharding = batch.lease.sharding
    if batch.shard is None or sharding is None:
        return None
    return ShardInfo(
        rank=batch.shard.rank,
        world_size=sharding.spec.world_size,
        size=sum(map(len, batch.shard.sequences)),
        split_groups=sharding.split_groups,
        equal_sequences=sharding.equal_sequences,
        ended_by=sharding.spec.ended_by.value,
        balance=BalanceInfo(**asdict(sharding.balance)),
        packing=None if batch.shard.packed is None else PackingInfo(**asdict(batch.shard.packed)),
    )


def _group(group: LeasedGroup, sequences: tuple[int, ...] | None, batch: OutgoingBatch) -> BatchGroup:
    environment = None if group.environment is None else batch.view.environments.get(group.environment)
    return BatchGroup(
        id=group.given_id or group.group_id,
        environment=group.environment,
        environment_name=None if environment is None else environment.name,
        size=group.size if sequences is None else len(sequences),
        sequences=None if sequences is None else list(sequences),
        policy_version=group.policy_version,
        staleness=staleness(group.policy_version, batch.view.policy_version),
        received_age_s=max(0, batch.view.clock_ms - group.accepted_ms) / 1000,
        filtered_by=group.filtered_by,
        loss_weight=group.loss_weight,
        replayed=None if group.replayed is None else _replayed(group.replayed),
    )


def _replayed(replayed: Replayed) -> ReplayedGroup:
    return ReplayedGroup(
        chunk=replayed.chunk,
        uses=replayed.uses,
        probability=replayed.probability,
        importance_weight=replayed.importance,
    )


async def batch_in_binary(info: BatchInfo, payloads: Sequence[Buffer], *, compact: bool) -> list[Buffer]:
    """Lay a batch out as one file, in parts. Many tensors, or many bytes to expand, are laid out in a thread."""
    sizes = [group.size for group in info.groups]
    metadata = {"batch": info.model_dump_json(exclude_defaults=True)}
    laid_out = partial(parts_of, payloads, sizes, metadata, compact=compact)
    header_bytes = sum(int.from_bytes(payload[:LENGTH_BYTES], "little") for payload in payloads)
    expanded_bytes = 0 if compact else sum(map(len, payloads))
    if header_bytes < _IN_THREAD_HEADER_BYTES and expanded_bytes < _IN_THREAD_BYTES:
        return laid_out()
    return await asyncio.to_thread(laid_out)


def _json(info: BatchInfo, payloads: Sequence[bytes]) -> Iterator[Buffer]:
    described = (group.model_dump_json(exclude_defaults=True).encode() for group in info.groups)
    yield info.model_dump_json(exclude={"groups"}, exclude_defaults=True).encode()[:-1] + b',"groups":['
    yield from comma_separated(map(in_json, described, map(unpack, payloads)))
    yield b"]}"
