"""How leases are stored."""

import json

import pytest

from app.core.batches.leases import Lease, Portion
from app.store.runs.leases import lease_text, parse_lease
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
