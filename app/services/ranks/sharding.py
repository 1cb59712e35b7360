"""Read batches to send them: whole, or the shard of one rank."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from app.core.batches.leases import Lease, LeasedGroup
from app.core.ranks.micro_batches import MicroBatches, pack
from app.core.ranks.requests import ShardRequest
from app.core.ranks.sharding import Sharding, ShardingSpec, divide, sequences_of, taken_by
from app.core.runs.view import QueueView
from app.services.batches.request import BatchShard, OutgoingBatch
from app.services.batches.retrieval import DamagedGroups, Retrieval, Retrieved
from app.services.threads import in_thread_if
from lachesis.wire.blob import Header, stored_header
from lachesis.wire.errors import SequenceTooLong
from lachesis.wire.sequences import lengths_of, take_sequences

_MANY_SEQUENCES = 2048
_MANY_PARTS = 64  # each takes about 200 us to cut


class BatchSharding:
    """Reads batches, and divides them if a rank asks."""

    def __init__(self, retrieval: Retrieval) -> None:
        self._retrieval = retrieval

    async def read(
        self, run: str, view: QueueView, lease: Lease, groups: Sequence[LeasedGroup], shard_request: ShardRequest | None
    ) -> OutgoingBatch | DamagedGroups:
        """Read a batch, or a rank's shard of it.

        Args:
            run: The run's name.
            view: The run.
            lease: The lease that the batch will have. If it is divided as the rank asks, that division is used. If not,
                a new division is made and becomes part of the returned lease.
            groups: All groups of the batch, in training order.
            shard_request: The rank; None for the whole batch.

        Raises:
            InvalidField: As for `divide`.
        """
        sharding = lease.sharding
        if shard_request is None or sharding is None or sharding.spec != shard_request.spec:
            whole = await self._retrieval.retrieve(run, groups)
            return whole if isinstance(whole, DamagedGroups) else await self.divide(view, lease, whole, shard_request)
        parts = sequences_of([group.size for group in groups], sharding, shard_request.rank)
        mine = await self._retrieval.retrieve(run, [groups[position] for position in parts])
        if isinstance(mine, DamagedGroups):
            return mine
        return await _shard(view, lease, sharding, mine, parts, shard_request)

    async def divide(
        self, view: QueueView, lease: Lease, all_of_it: Retrieved, shard_request: ShardRequest | None
    ) -> OutgoingBatch:
        """Make a batch from its groups, or a rank's shard of it. The division becomes part of the lease.

        Raises:
            SequenceTooLong: A sequence is longer than the micro-batches that the rank asks for.
            InvalidField: A sequence lacks a field that the cost needs.
        """
        groups, payloads = all_of_it.groups, all_of_it.payloads
        if shard_request is None:
            return OutgoingBatch(replace(lease, sharding=None), groups, payloads, view)
        sizes = [group.size for group in groups]
        sharding = await in_thread_if(sum(sizes) >= _MANY_SEQUENCES, _divide, groups, payloads, shard_request.spec)
        parts = sequences_of(sizes, sharding, shard_request.rank)
        mine = Retrieved(tuple(groups[at] for at in parts), tuple(payloads[at] for at in parts))
        return await _shard(view, lease, sharding, mine, parts, shard_request)


async def _shard(
    view: QueueView,
    lease: Lease,
    sharding: Sharding,
    mine: Retrieved,
    parts: Mapping[int, tuple[int, ...]],
    shard_request: ShardRequest,
) -> OutgoingBatch:
    """Cut a rank's part out of its groups. ``parts`` has the sequences by position of the group."""
    sequences = tuple(parts.values())
    divided = sum(len(part) < group.size for group, part in zip(mine.groups, sequences, strict=True))
    cut = await in_thread_if(divided >= _MANY_PARTS, _cut, mine.groups, mine.payloads, sequences)
    many = sum(map(len, sequences)) >= _MANY_SEQUENCES
    packed = await in_thread_if(many, _packed, cut, sharding)
    # Only then could the same request mean another batch. Ids of all ranks would make each read of the run longer.
    request_id = shard_request.request_id if shard_request.has_later(lease.step) else ""
    held = replace(lease, sharding=taken_by(sharding, shard_request.rank, request_id))
    return OutgoingBatch(held, mine.groups, cut, view, BatchShard(shard_request.rank, sequences, packed))


def _divide(groups: Sequence[LeasedGroup], payloads: Sequence[bytes], spec: ShardingSpec) -> Sharding:
    headers = [stored_header(payload) for payload in payloads]
    lengths = list(map(lengths_of, payloads, headers))
    if spec.micro_batch_tokens is not None:
        _check_fit(groups, lengths, spec.micro_batch_tokens)
    return divide(lengths, [_cost(header) for header in headers], spec)


def _check_fit(groups: Sequence[LeasedGroup], lengths: Sequence[NDArray[np.integer]], cap_tokens: int) -> None:
    for group, own in zip(groups, lengths, strict=True):
        longest = int(np.argmax(own))
        if own[longest] > cap_tokens:
            where = f"sequence {longest} of group {group.given_id or group.group_id}"
            why = f"{where} in the next batch has {own[longest]} tokens, more than the {cap_tokens} of a micro-batch"
            raise SequenceTooLong(why, ("query", "micro_batch_tokens"), group.group_id)


def _cost(header: Header) -> float | None:
    cost = header.metadata.get("cost")
    return None if cost is None else float(cost)


def _packed(payloads: Sequence[bytes], sharding: Sharding) -> MicroBatches | None:
    """Put the sequences of a shard into micro-batches, if the ranks ask for them; lengths are read only then."""
    spec = sharding.spec
    if spec.micro_batch_tokens is None:
        return None
    lengths = [lengths_of(payload, stored_header(payload)) for payload in payloads] or [np.empty(0, np.int64)]
    cap_tokens, at_least = spec.micro_batch_tokens, sharding.micro_batches
    return pack(np.concatenate(lengths), cap_tokens, padded=spec.padded, at_least=at_least)


def _cut(groups: Sequence[LeasedGroup], payloads: Sequence[bytes], parts: Sequence[Sequence[int]]) -> tuple[bytes, ...]:
    """Return the payloads with only these sequences; payloads of whole groups are unchanged."""
    return tuple(map(_part, groups, payloads, parts))


def _part(group: LeasedGroup, payload: bytes, sequences: Sequence[int]) -> bytes:
    return payload if len(sequences) == group.size else take_sequences(payload, sequences)
