"""Which batches come back when a trainer goes back to a saved state, and in which order."""

from dataclasses import replace
from typing import Literal, assert_never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.batches.leases import Lease, Portion
from app.core.batches.rewind import plan_rewind, restored_version
from app.core.runs.counters import KeptBatches
from app.core.runs.settings import Policy
from app.core.runs.view import RunView
from lachesis.wire.states import LEASE_STATES
from tests.core.views import EMPTY

Fate = Literal["trained", "waits", "comes back", "stays quarantined", "untouched"]

STEPS = 6
REWINDS = 3
VERSION = 9

leases = st.builds(
    Lease,
    batch_id=st.just(""),
    state=st.sampled_from(LEASE_STATES),
    worker=st.just("host/1/x"),
    delivery_count=st.integers(1, 3),
    step=st.just(0),
    relaxed=st.booleans(),
    lease_id=st.sampled_from(["", "lease"]),
    deadline_ms=st.integers(0, 2),
    request_id=st.sampled_from(["", "request"]),
    trainer=st.sampled_from(["", "trainer"]),
    contents=st.just((Portion(0, 1, 4),)),
    debts=st.sampled_from([(), ((0, 2),)]),
    rewound=st.integers(0, REWINDS),
    given_back=st.sampled_from(["", "lease"]),
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[RunView, int, list[tuple[int, Lease]]]:
    """A run with at most one batch of each step, the step to go back to, and the kept batches after it."""
    step = draw(st.integers(0, STEPS))
    held, kept = [], []
    for number in range(1, STEPS + 1):
        lease = replace(draw(leases), batch_id=f"batch{number}", step=number)
        match draw(st.sampled_from(["held", "kept", "neither"])):
            case "held":
                held.append(lease)
            case "kept" if number > step:
                kept.append((draw(st.integers(0, VERSION)), lease))
    policy = Policy(max_deliveries=draw(st.integers(1, 3)))
    clock_ms = draw(st.integers(0, 2))
    view = replace(EMPTY, leases=tuple(held), step=STEPS, rewinds=REWINDS, policy=policy, clock_ms=clock_ms)
    return view, step, draw(st.permutations(kept))


def fate(lease: Lease, step: int, view: RunView) -> Fate:
    """What a rewind means for one batch that is leased, said of each state on its own."""
    earlier = lease.step <= step
    match lease.state:
        case "quarantined":
            return "untouched" if earlier else "stays quarantined"
        case "sending" | "sent":
            return "trained" if earlier else "comes back"
        case "held":
            is_over = lease.deadline_ms <= view.clock_ms and view.policy.max_deliveries <= lease.delivery_count
            if earlier:
                return "trained"
            return "stays quarantined" if is_over else "comes back"
        case "returned":
            if earlier:
                return "trained" if lease.rewound and lease.given_back == "" else "waits"
            return "comes back"
    assert_never(lease.state)


def again(lease: Lease, delivery_count: int) -> Lease:
    """A batch that came back by the next rewind: all that is left of its lease."""
    return Lease(
        lease.batch_id,
        "returned",
        lease.worker,
        delivery_count,
        lease.step,
        lease.relaxed,
        contents=lease.contents,
        debts=lease.debts,
        rewound=REWINDS + 1,
    )


@given(runs())
def test_a_rewind_gives_each_batch_its_fate(run: tuple[RunView, int, list[tuple[int, Lease]]]) -> None:
    view, step, kept = run
    fates = {lease.batch_id: fate(lease, step, view) for lease in view.leases}
    expected: dict[int, tuple[Lease | None, Lease]] = {lease.step: (None, again(lease, 1)) for _, lease in kept}
    for lease in view.leases:
        if fates[lease.batch_id] == "waits":
            expected[lease.step] = (lease, lease)
        if fates[lease.batch_id] == "comes back":
            expected[lease.step] = (lease, again(lease, lease.delivery_count))
    plan = plan_rewind(step, view, kept)
    assert list(plan.redelivered) == [expected[number] for number in sorted(expected)]
    assert [lease for lease in view.leases if fates[lease.batch_id] == "trained"] == list(plan.trained)
    assert [lease for lease in view.leases if fates[lease.batch_id] == "stays quarantined"] == list(plan.quarantined)


@given(runs())
def test_the_first_kept_batch_says_which_policy_version_comes_back(
    run: tuple[RunView, int, list[tuple[int, Lease]]],
) -> None:
    view, step, kept = run
    view = replace(view, policy_version=VERSION + 1)
    versions = {lease.step: version for version, lease in kept}
    first = next((versions[number] for number in range(STEPS + 1) if number in versions), VERSION + 1)
    assert plan_rewind(step, view, kept).policy_version == first


@pytest.mark.parametrize(
    ("checkpoint", "checkpoint_version", "version"),
    [(2, 5, 5), (2, 0, 0), (2, None, 7), (1, 5, 7), (3, 5, 7)],
)
def test_a_checkpoint_of_that_very_step_says_its_policy_version_itself(
    checkpoint: int, checkpoint_version: int | None, version: int
) -> None:
    kept = KeptBatches(checkpoint=checkpoint, checkpoint_version=checkpoint_version)
    assert restored_version(2, replace(EMPTY, kept=kept), [(4, 8), (3, 7)]) == version
