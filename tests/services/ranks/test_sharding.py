"""Shards of large batches are made beside the event loop."""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from app.core.ranks.requests import ShardRequest
from app.core.ranks.sharding import ShardingSpec
from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest
from app.store.groups.encoded_group import EncodedGroup
from lachesis.wire.columns import Ragged, pack
from tests.services.conftest import RUN, Process, config


def columns(size: int) -> bytes:
    tokens = Ragged(np.ones(size, np.int64), (np.ones(size, np.int64),))
    return bytes(pack({"tokens": tokens, "masks": tokens, "scores": Ragged(np.ones(size))}, b"{}"))


@pytest.mark.parametrize(("size", "threads"), [(2048, 2), (2047, 0)])
async def test_the_micro_batches_of_a_large_shard_do_not_block_the_event_loop(
    process: Callable[..., Process], monkeypatch: pytest.MonkeyPatch, size: int, threads: int
) -> None:
    """Every other request of the process waited: 1.1 s for 32,768 sequences."""
    services, _ = process()
    await services.runs.administration.create(RUN, config(size), Policy())
    await services.groups.native.submit(RUN, [EncodedGroup(size, None, columns(size), "a")])
    started = []

    async def to_thread(function: Callable[..., object], *args: object) -> object:
        started.append(function)
        return function(*args)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    shard_request = ShardRequest(0, ShardingSpec(1, micro_batch_tokens=64))
    batch = (await services.batches.dispatch.take(RUN, BatchRequest(shard_request=shard_request))).batch
    assert batch is not None
    assert batch.shard is not None
    assert batch.shard.packed is not None
    assert len(started) == threads, "to divide the batch, and to pack the shard"


async def test_ranks_that_are_past_it_get_a_whole_batch_that_reached_nobody(process: Callable[..., Process]) -> None:
    services, _ = process()
    dispatch = services.batches.dispatch
    await services.runs.administration.create(RUN, config(1), Policy())
    await services.groups.native.submit(RUN, [EncodedGroup(1, None, columns(1), name) for name in "ab"])
    whole = (await dispatch.take(RUN, BatchRequest("whole"))).batch
    assert whole is not None
    later = (await dispatch.take(RUN, BatchRequest(shard_request=ShardRequest(0, ShardingSpec(1))))).batch
    assert later is not None
    assert later.lease.step == 2
    await dispatch.hand_on(RUN, whole)
    rank = BatchRequest(shard_request=ShardRequest(0, ShardingSpec(1), after=2))
    again = (await dispatch.take(RUN, rank)).batch
    assert again is not None
    assert again.lease.batch_id == whole.lease.batch_id
