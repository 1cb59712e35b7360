"""When a trainer has held a batch for too long, and when too often."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.batches.leases import (
    Lease,
    after_registration,
    as_given_back,
    as_quarantined,
    as_returned,
    as_rewound,
    deadlines_ahead,
    extended_deadline_ms,
    in_saved_state,
    is_exhausted,
    is_expired,
    is_redeliverable,
    lease_deadline_ms,
    seconds_left,
)
from lachesis.wire.states import LEASE_STATES, LeaseState

moments = st.integers(0, 20)
leases = st.builds(
    Lease,
    batch_id=st.just("batch"),
    state=st.sampled_from(LEASE_STATES),
    worker=st.just("host/1/x"),
    delivery_count=st.integers(1, 5),
    step=st.just(1),
    relaxed=st.just(False),
    deadline_ms=moments,
)


def held(delivery_count: int = 1, deadline_ms: int = 100) -> Lease:
    return Lease("batch", "held", "host/1/x", delivery_count, 1, relaxed=False, deadline_ms=deadline_ms)


@pytest.mark.parametrize(("asked_s", "deadline_ms"), [(None, 60_100), (0.0, 100), (1.5, 1600)])
def test_a_lease_lasts_as_long_as_was_asked_or_by_default(asked_s: float | None, deadline_ms: int) -> None:
    assert lease_deadline_ms(100, asked_s, 60.0) == deadline_ms


@given(leases, moments, st.none() | st.floats(0, 0.02), st.floats(0, 0.02))
def test_an_extension_asks_like_a_new_lease_and_shortens_none(
    lease: Lease, clock_ms: int, asked_s: float | None, default_s: float
) -> None:
    asked = clock_ms, asked_s, default_s
    assert extended_deadline_ms(lease, *asked) == sorted([lease.deadline_ms, lease_deadline_ms(*asked)])[-1]


@pytest.mark.parametrize(("clock_ms", "over"), [(0, False), (99, False), (100, True), (101, True)])
def test_a_batch_is_held_until_its_deadline_and_no_longer(clock_ms: int, over: bool) -> None:
    assert is_expired(held(deadline_ms=100), clock_ms) == over


@pytest.mark.parametrize(("clock_ms", "left"), [(0, 0.1), (99, 0.001), (100, 0), (101, 0)])
def test_a_lease_says_how_long_it_lasts(clock_ms: int, left: float) -> None:
    assert seconds_left(held(deadline_ms=100), clock_ms) == left


@pytest.mark.parametrize("state", sorted(set(LEASE_STATES) - {"held"}))
def test_other_batches_have_no_deadline(state: LeaseState) -> None:
    assert seconds_left(replace(held(), state=state), 200) is None


@pytest.mark.parametrize(("delivery_count", "spent"), [(1, False), (4, False), (5, True), (6, True)])
def test_a_batch_that_ran_out_as_often_as_allowed_is_quarantined(delivery_count: int, spent: bool) -> None:
    assert is_exhausted(held(delivery_count), 100, max_deliveries=5) == spent


@pytest.mark.parametrize("state", sorted(set(LEASE_STATES) - {"held"}))
@given(leases, moments)
def test_only_what_is_held_runs_out(state: LeaseState, lease: Lease, clock_ms: int) -> None:
    """A batch that is being sent has no deadline: that is 0, and long past."""
    assert not is_expired(replace(lease, state=state), clock_ms)
    assert not is_exhausted(replace(lease, state=state), clock_ms, 1)


@given(leases, moments, moments, st.integers(1, 5))
def test_what_has_run_out_stays_so_as_time_passes(lease: Lease, clock_ms: int, more_ms: int, most: int) -> None:
    assert is_expired(lease, clock_ms) <= is_expired(lease, clock_ms + more_ms)
    assert is_exhausted(lease, clock_ms, most) <= is_exhausted(lease, clock_ms + more_ms, most)
    assert is_exhausted(lease, clock_ms, most) <= is_expired(lease, clock_ms)


@given(leases, moments, st.integers(1, 5), st.booleans())
def test_a_batch_waits_exactly_while_nobody_has_it_and_somebody_may(
    lease: Lease, clock_ms: int, most: int, being_sent: bool
) -> None:
    """Who has it: it is on its way or arrived, or held and not overdue. Who may not: it is quarantined, or will be."""
    on_its_way = lease.state == "sending" and being_sent
    is_held = lease.state == "held" and clock_ms < lease.deadline_ms
    is_quarantined = lease.state == "quarantined" or is_exhausted(lease, clock_ms, most)
    somebody_has_it = on_its_way or is_held or lease.state == "sent"
    assert is_redeliverable(lease, clock_ms, most, being_sent=being_sent) == (
        not somebody_has_it and not is_quarantined
    )


@given(leases, moments, st.integers(1, 5), st.booleans())
def test_a_batch_waits_once_returned_and_never_once_quarantined(
    lease: Lease, clock_ms: int, most: int, being_sent: bool
) -> None:
    assert is_redeliverable(as_returned(lease), clock_ms, most, being_sent=being_sent)
    assert not is_redeliverable(as_quarantined(lease), clock_ms, most, being_sent=being_sent)


def test_a_deadline_is_ahead_until_the_clock_reaches_it() -> None:
    assert deadlines_ahead([held(deadline_ms=ms) for ms in (99, 100, 101, 200)], 100) == [101, 200]


def test_a_trainer_that_registers_again_takes_back_what_was_sent_and_no_more() -> None:
    before = [replace(held(), state=state) for state in LEASE_STATES]
    after = after_registration(before, None)
    changed = {new.state for old, new in zip(before, after, strict=True) if new != old}
    assert changed == {"returned"}
    assert [new.state for new in after] == [
        "returned" if old.state in ("sending", "sent") else old.state for old in before
    ]


def test_batches_of_a_former_configuration_come_before_all_others_in_their_order() -> None:
    before = [replace(as_rewound(held(), 1), step=step, debts=((0, 2),), given_back="lease") for step in (500, 502)]
    after = after_registration(before, 7)
    assert after == [replace(lease, step=step) for step, lease in zip((6, 7), [as_returned(held())] * 2, strict=True)]


def test_a_later_saved_state_has_held_batches_and_untouched_rewound_ones() -> None:
    again = as_rewound(held(), 1)
    given = as_given_back(replace(again, state="held", lease_id="second"))
    assert [in_saved_state(lease) for lease in (held(), again, as_rewound(given, 2))] == [True] * 3
    assert [in_saved_state(lease) for lease in (as_returned(held()), given, as_quarantined(held()))] == [False] * 3
