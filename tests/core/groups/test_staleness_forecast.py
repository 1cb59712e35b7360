"""The forecast agrees with a trainer that takes the oldest sequences first, and makes versions of batches."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.batches.leases import Lease
from app.core.groups.staleness_forecast import staleness_forecast
from app.core.runs.counters import Trained
from app.core.runs.settings import Policy
from app.core.runs.view import RunView
from lachesis.wire.states import LeaseState
from tests.core.views import EMPTY, environment

SIZE = 2
LEASE = Lease("batch", "held", "worker", 1, 1, relaxed=False)


def view_of(
    batch_size: int, queued: int, running: int, trained: Trained | None = None, max_staleness: int | None = None
) -> RunView:
    """A run with so many groups of two sequences."""
    assert EMPTY.config is not None
    return replace(
        EMPTY,
        config=EMPTY.config.model_copy(update={"batch_size": batch_size}),
        environments={0: environment(0, SIZE)},
        lanes={(0, SIZE): queued},
        running={0: running, 7: 99},  # 7 has left
        trained=trained or Trained(),
        policy=Policy(max_staleness=max_staleness),
    )


@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 20), st.integers(0, 5), st.integers(1, 4))
def test_a_trainer_that_takes_the_oldest_first_is_that_many_versions_further(
    batch_groups: int, queued: int, running: int, begun: int, per_version: int
) -> None:
    view = view_of(batch_groups * SIZE, queued, running, Trained(begun, versions_per_batch=1 / per_version))
    found = staleness_forecast(view)
    assert found is not None
    mine, batches = queued + running, begun  # the place of the group among all that are trained on
    while mine >= batch_groups:
        mine -= batch_groups
        batches += 1
    assert batches // per_version == int(found.versions + 1e-9)
    assert (found.waiting_sequences, found.running_sequences) == (queued * SIZE, running * SIZE)


def test_buffered_groups_wait_too_and_versions_ahead_of_their_batches_make_nothing_younger() -> None:
    view = replace(view_of(4, 2, 0, Trained(-1)), buffers={(0, 1): 4})
    found = staleness_forecast(view)
    assert found is not None
    assert (found.waiting_sequences, found.batches_ahead) == (8, 2)


def test_several_versions_of_each_batch_count() -> None:
    found = staleness_forecast(view_of(4, 8, 0, Trained(versions_per_batch=4)))
    assert found is not None
    assert (found.batches_ahead, found.versions) == (4, 16)


def test_the_sentence_says_when_such_groups_are_dropped() -> None:
    fine = staleness_forecast(view_of(4, 2, 3, max_staleness=2))
    assert fine is not None
    assert fine.detail.startswith(
        "a group that starts now will be about 2.5 policy versions old when it is trained on: "
    )
    assert fine.detail.endswith(
        ": 4 sequences wait, 6 are being generated, 0 batches are leased or wait for a policy version, and a batch has "
        "4 sequences; max_staleness is 2"
    )
    young = staleness_forecast(view_of(4, 2, 0))
    assert young is not None
    assert "about 1 policy version old" in young.detail
    late = staleness_forecast(view_of(4, 2, 4, max_staleness=2))
    assert late is not None
    assert late.detail.endswith("so such groups are dropped: start fewer groups at a time")
    unlimited = staleness_forecast(view_of(4, 2, 4))
    assert unlimited is not None
    assert "max_staleness" not in unlimited.detail


def test_there_is_no_forecast_before_the_batch_size_is_known() -> None:
    assert staleness_forecast(replace(EMPTY, config=None)) is None


def test_a_batch_takes_only_its_fresh_part_from_the_queue() -> None:
    mixed = replace(view_of(8, 12, 4), policy=Policy(fresh_fraction=0.5))
    found = staleness_forecast(mixed)
    assert found is not None
    assert found.batches_ahead == (24 + 8) / 4
    assert "a batch takes 4 of its 8 sequences from the queue" in found.detail
    unfilled = staleness_forecast(replace(mixed, unfilled=True))
    assert unfilled is not None
    assert unfilled.batches_ahead == (24 + 8) / 8, "the replay buffer could not fill the last batch"


@pytest.mark.parametrize(("state", "batches"), [("held", 1), ("returned", 1), ("quarantined", 0)])
def test_a_batch_that_no_trainer_will_get_is_not_ahead(state: LeaseState, batches: int) -> None:
    found = staleness_forecast(replace(view_of(4, 0, 0), leases=(replace(LEASE, state=state),)))
    assert found is not None
    assert found.batches_ahead == batches
