"""How leases are stored."""

import json
import tracemalloc
from dataclasses import replace

import pytest

from app.core.batches.leases import Lease, Portion
from app.store.runs.lease_codec import lease_text, parse_lease
from lachesis.wire.states import LEASE_STATES, LeaseState


@pytest.mark.parametrize("state", LEASE_STATES)
def test_a_lease_is_read_as_it_was_written(state: LeaseState) -> None:
    lease = Lease(
        "batch",
        state,
        "host/1/x",
        2,
        7,
        relaxed=True,
        contents=(Portion(None, 1, 4), Portion(3, 2, 8)),
        debts=((3, -1),),
    )
    assert parse_lease("batch", lease_text(lease)) == lease


def test_a_lease_in_an_unknown_state_is_not_read() -> None:
    text = lease_text(Lease("batch", "held", "host/1/x", 1, 1, relaxed=False))
    with pytest.raises(ValueError, match="'lost' is not a state of a lease"):
        parse_lease("batch", json.dumps(json.loads(text) | {"state": "lost"}))


def test_of_each_batch_only_the_newest_lease_is_remembered() -> None:
    """A batch of many ranks has another text after each request of a rank."""
    ranks = Lease("batch", "held", "host/1/x" * 10_000, 1, 1, relaxed=False)
    tracemalloc.start()
    try:
        for number in range(200):
            assert parse_lease("batch", lease_text(replace(ranks, delivery_count=number))).delivery_count == number
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10 * len(ranks.worker)


def test_the_texts_of_remembered_leases_are_bounded() -> None:
    large = Lease("batch", "held", "w" * 1_000_000, 1, 1, relaxed=False)
    tracemalloc.start()
    try:
        for number in range(40):
            batch_id = f"large {number}"
            assert parse_lease(batch_id, lease_text(large)) == replace(large, batch_id=batch_id)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20 * len(large.worker)
