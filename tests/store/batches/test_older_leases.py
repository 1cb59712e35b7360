"""Leases that older builds stored: they change and end as those of this build do, which encodes them differently."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from app.core.batches.leases import Lease, as_rewound
from app.store.runs.lease_codec import parse_lease
from tests.services.replay.moves import fragment
from tests.store.conftest import CONFIG, KEYS, LASTING_MS, RUN, Store, encoded
from tests.store.replay.moves import ReplayMoves, replay_moves

WHOLE = (
    '{"state":"held","worker":"host/1/x","delivery_count":1,"step":1,"relaxed":false,"lease_id":"lease",'
    '"deadline_ms":60000,"request_id":"q0","trainer":"","contents":[[0,1,2]],"sharding":null,"replayed":[],'
    '"debts":[],"rewound":0,"given_back":""}'
)
"""A lease as every build of format 5 has written it."""

DIVIDED = WHOLE.replace(
    '"sharding":null',
    '"sharding":{"spec":{"world_size":2,"split_groups":false,"equal_sequences":null,"cost":"tokens","ended_by":"all",'
    '"micro_batch_tokens":null,"padded":false,"equal_micro_batches":true},"split_groups":false,"equal_sequences":true,'
    '"ranks":"eJxjYGBkAAAABgAC","balance":{"method":"whole","imbalance":0.0,"max_over_min":1.0,"contiguous":0.0,'
    '"strided":0.0,"bound":0.0},"micro_batches":0,"taken":[0],"acknowledged":[]}',
)
"""A lease of a divided batch, as builds wrote it that did not remember the requests of ranks."""

older = pytest.mark.parametrize("text", [WHOLE, DIVIDED], ids=["whole", "divided"])


async def extend(store: Store, lease: Lease) -> bool:
    return await store.batches.change(RUN, lease, replace(lease, deadline_ms=90_000))


async def acknowledge(store: Store, lease: Lease) -> bool:
    return await store.acknowledge(lease, keep=True) == 1


async def give_back(store: Store, lease: Lease) -> bool:
    groups = await store.batches.groups_of(RUN, lease.batch_id)
    return await store.batches.dissolve(RUN, lease, groups or [], LASTING_MS)


async def discard(store: Store, lease: Lease) -> bool:
    return await store.batches.discard(RUN, lease, "quarantined", LASTING_MS)


async def rewind(store: Store, lease: Lease) -> bool:
    return await store.rewind(0, [], [(lease, as_rewound(lease, 1))])


@older
@pytest.mark.parametrize("change", [extend, acknowledge, give_back, discard, rewind])
async def test_a_batch_that_an_older_build_leased_changes_and_ends(
    store: Store, text: str, change: Callable[[Store, Lease], Awaitable[bool]]
) -> None:
    await store.admit(encoded(), ids=["one"])
    taken = await store.take("one")
    await store.redis.hset(KEYS.lease_states, taken.batch_id, text)  # type: ignore[misc]
    (lease,) = (await store.view()).leases
    assert await change(store, lease)
    await store.books()


@older
async def test_a_lease_changes_again_after_this_build_has_written_it(store: Store, text: str) -> None:
    """The text that was read is outdated then."""
    await store.admit(encoded(), ids=["one"])
    taken = await store.take("one")
    await store.redis.hset(KEYS.lease_states, taken.batch_id, text)  # type: ignore[misc]
    (lease,) = (await store.view()).leases
    longer = replace(lease, deadline_ms=90_000)
    assert await store.batches.change(RUN, lease, longer)
    assert not await store.batches.change(RUN, lease, replace(lease, deadline_ms=95_000))
    assert await acknowledge(store, longer)


@older
async def test_a_trainer_of_atropos_registers_over_the_batch_of_an_older_build(store: Store, text: str) -> None:
    await store.admit(encoded(), ids=["one"])
    taken = await store.take("one")
    sent = text.replace('"held"', '"sent"')
    await store.redis.hset(KEYS.lease_states, taken.batch_id, sent)  # type: ignore[misc]
    assert not await store.runs.register(RUN, CONFIG)
    assert [lease.state for lease in (await store.view()).leases] == ["returned"]


async def extend_sample(moves: ReplayMoves, lease: Lease) -> bool:
    return await moves.samples.change(RUN, lease, replace(lease, deadline_ms=90_000))


async def end_sample(moves: ReplayMoves, lease: Lease) -> bool:
    return await moves.samples.end(RUN, lease, "acknowledged", await moves.view())


@older
@pytest.mark.parametrize("change", [extend_sample, end_sample])
async def test_a_sample_that_an_older_build_leased_changes_and_ends(
    store: Store, text: str, change: Callable[[ReplayMoves, Lease], Awaitable[bool]]
) -> None:
    moves = await replay_moves(store)
    await moves.insert(fragment(0))
    await moves.take(0, request_id="q0")
    await store.redis.hset(KEYS.replay_part("sample_states"), "sample", text)  # type: ignore[misc]
    assert await change(moves, parse_lease("sample", text))
    await moves.books()
