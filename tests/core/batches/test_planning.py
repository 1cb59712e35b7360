"""When a minimum may be relaxed, and what is owed afterwards."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, example, given
from hypothesis import strategies as st

from app.core.batches.diagnosis import explain
from app.core.batches.planning import Decision, decide
from app.core.batches.selection import select
from app.core.environments.live import EnvironmentsById, LiveEnvironments, declared_sizes
from app.core.model import Lane, QueuedGroup
from app.core.runs.settings import Policy
from app.core.runs.view import RunView
from lachesis.wire.blockers import Blocker
from tests.core.cost import calls_of
from tests.core.views import EMPTY, TTL_MS, environment
from tests.properties import examples

PATIENCE_MS = 30_000


def lanes_of(queue: Sequence[tuple[int, int]]) -> list[Lane]:
    """Lanes of a queue given as (environment, size), oldest first."""
    heads: dict[tuple[int, int], list[QueuedGroup]] = {}
    for arrival, lane in enumerate(queue):
        heads.setdefault(lane, []).append(QueuedGroup(arrival, str(arrival)))
    return [Lane(*lane, len(groups), tuple(groups)) for lane, groups in heads.items()]


def three(**changes: object) -> RunView:
    """Three environments promised 0.3 of a batch of 8, all with groups of 4: two fit."""
    environments = {n: environment(n, 4, 0.3) for n in range(3)}
    return replace(EMPTY, environments=environments, **changes)  # type: ignore[arg-type]


def at(view: RunView, queue: Sequence[tuple[int, int]]) -> Decision:
    return decide(view, lanes_of(queue), PATIENCE_MS)


def test_a_conflict_is_waited_out_then_relaxed_and_stays_relaxed() -> None:
    queue = [(0, 4), (1, 4), (2, 4)] * 4
    first = at(three(clock_ms=5_000), queue)
    assert first.not_ready is not None
    assert (first.not_ready.blocker, first.conflict_since_ms) == (Blocker.MINIMUMS_CONFLICT, 5_000)
    for last_batch_ms in (None, 1_000):
        early = at(three(clock_ms=34_999, conflict_since_ms=5_000, last_batch_ms=last_batch_ms), queue)
        assert early.plan is None
    for clock_ms in (35_000, 35_001):
        late = at(three(clock_ms=clock_ms, conflict_since_ms=5_000, last_batch_ms=35_000), queue)
        assert late.plan is not None
        assert late.plan.relaxed
        assert (late.debts, late.conflict_since_ms) == ({2: 2}, 5_000)


def test_a_conflict_is_said_of_sizes_only_if_no_further_groups_would_end_it() -> None:
    config = EMPTY.config.model_copy(update={"batch_size": 16}) if EMPTY.config else None
    view = replace(EMPTY, config=config, environments={0: environment(0, 16), 1: environment(1, 8, 0.5)})
    [one_more, never] = [at(view, [(0, 16), (1, 8)]).not_ready, at(three(), [(0, 4), (1, 4), (2, 4)]).not_ready]
    assert one_more is not None
    assert (one_more.blocker, one_more.unblocked_by) == (Blocker.MINIMUMS_CONFLICT, ((1, 8),))
    assert one_more.detail == (
        "24 usable sequences are queued, but no groups of sizes 8, 16 sum to exactly 16 with environment 1 (env1_0) at "
        "least 8; relaxing in 30.0 s"
    )
    assert never is not None
    assert never.detail == (
        "group sizes make the minimums impossible together in a batch of 8: environment 0 (env0_0) at least 2, "
        "environment 1 (env1_0) at least 2, environment 2 (env2_0) at least 2; relaxing in 30.0 s"
    )


def test_a_conflict_goes_on_while_the_queue_is_short() -> None:
    """A trainer that is faster than its environments does not wait again for each batch."""
    short = at(three(clock_ms=40_000, conflict_since_ms=5_000, last_batch_ms=35_000), [(0, 4)])
    assert short.not_ready is not None
    assert (short.not_ready.blocker, short.conflict_since_ms) == (Blocker.TOO_FEW_SEQUENCES, 5_000)
    later = at(three(clock_ms=41_000, conflict_since_ms=5_000, last_batch_ms=35_000), [(0, 4), (1, 4), (2, 4)])
    assert later.plan is not None
    assert later.plan.relaxed


def test_a_wait_for_a_conflict_begins_with_groups_that_would_make_a_batch() -> None:
    short = at(three(clock_ms=40_000), [(0, 4)])
    assert short.conflict_since_ms is None


def test_shares_hold_over_time_through_debts() -> None:
    view = three(clock_ms=PATIENCE_MS, conflict_since_ms=0)
    queue = [(n % 3, 4) for n in range(60)]
    got: Counter[int] = Counter()
    for _ in range(15):
        decision = at(view, queue)
        assert decision.plan is not None
        taken = {group.arrival for group in decision.plan.groups}
        for group in decision.plan.groups:
            assert group.environment is not None
            got[group.environment] += group.size
        queue = [lane for arrival, lane in enumerate(queue) if arrival not in taken]
        view = replace(view, debts=decision.debts, step=view.step + 1)
    assert sum(got.values()) == 120
    assert set(got.values()) == {40}


def test_more_than_sizes_force_is_given_up_only_after_another_wait_without_a_batch() -> None:
    """Sizes force a shortfall of 2; only environment 0 has sent anything, so serving it alone would give up 4."""
    queue = [(0, 4), (0, 4)]
    waiting = at(three(clock_ms=40_000, conflict_since_ms=0, last_batch_ms=20_000), queue)
    assert waiting.not_ready is not None
    assert waiting.not_ready.missing_by_environment == {1: 2, 2: 2}
    served = at(three(clock_ms=50_000, conflict_since_ms=0, last_batch_ms=20_000), queue)
    assert served.plan is not None
    assert served.debts == {1: 2, 2: 2}


def test_a_stray_group_that_could_help_only_in_numbers_does_not_wedge_the_run() -> None:
    """Environment 0 makes groups of 5; one stray group of 2 of it makes 8 possible on paper, with more like it."""
    view = replace(EMPTY, environments={0: environment(0, 5, 0.5), 1: environment(1, 4)})
    queue = [(0, 5), (0, 2), (1, 4), (1, 4), (1, 4)]
    first = at(view, queue)
    assert first.not_ready is not None
    assert first.conflict_since_ms == 0
    assert first.not_ready.blocker is Blocker.MINIMUMS_CONFLICT
    later = at(replace(view, clock_ms=PATIENCE_MS, conflict_since_ms=0), queue)
    assert later.plan is not None
    assert later.plan.relaxed


def test_while_a_batch_waits_nobody_works_out_which_groups_it_would_be() -> None:
    """Trainers and dashboards ask several times a second."""
    shares = {n: environment(n, 18, 1 / 8) for n in range(8)}
    config = EMPTY.config.model_copy(update={"batch_size": 256}) if EMPTY.config else None
    view = replace(EMPTY, config=config, environments=shares, conflict_since_ms=0, clock_ms=PATIENCE_MS)
    queue = [(n, size) for _ in range(8) for size in (18, 20, 22, 34) for n in range(8)]
    assert at(view, queue).plan is not None
    waiting = replace(view, clock_ms=PATIENCE_MS - 1)
    assert at(waiting, queue).plan is None
    assert calls_of(lambda: at(waiting, queue)) < 0.5 * calls_of(lambda: at(view, queue))


def test_sizes_that_fit_no_batch_even_without_minimums_start_no_wait_and_end_one() -> None:
    for since_ms in (None, 0):
        view = replace(EMPTY, environments={0: environment(0, 5)}, conflict_since_ms=since_ms)
        decision = at(view, [(0, 5), (0, 5)])
        assert decision.not_ready is not None
        assert (decision.not_ready.blocker, decision.conflict_since_ms) == (Blocker.NO_EXACT_FIT, None)


def test_a_slow_live_environment_is_waited_for_without_end() -> None:
    view = replace(EMPTY, environments={0: environment(0, 4, 0.5), 1: environment(1, 4)}, clock_ms=100_000)
    decision = at(view, [(1, 4), (1, 4)])
    assert decision.not_ready is not None
    assert (decision.not_ready.blocker, decision.conflict_since_ms) == (Blocker.MINIMUM_SHORT, None)


def test_a_dead_environment_binds_no_more_and_its_groups_stay_usable() -> None:
    view = replace(EMPTY, environments={0: environment(0, 4, 1.0), 1: environment(1, 4)}, clock_ms=TTL_MS + 1)
    alive = replace(view, environments=view.environments | {1: environment(1, 4, heard_ms=TTL_MS)})
    decision = at(alive, [(0, 4), (1, 4)])
    assert decision.plan is not None
    assert [group.environment for group in decision.plan.groups] == [0, 1]


def test_a_batch_that_keeps_every_minimum_pays_debts_back() -> None:
    view = replace(EMPTY, environments={0: environment(0, 4, 0.25)}, debts={0: 3})
    decision = at(view, [(0, 4), (0, 4)])
    assert decision.plan is not None
    assert not decision.plan.relaxed
    assert decision.debts == {}


def scarce(**changes: object) -> RunView:
    """Environment 0 is promised half of a batch of 8, environment 2 a quarter; a batch waits 10 s for either."""
    environments = {0: environment(0, 2, 0.5), 1: environment(1, 2), 2: environment(2, 2, 0.25)}
    policy = Policy(relax_scarce_after_s=10.0)
    return replace(EMPTY, environments=environments, policy=policy, **changes)  # type: ignore[arg-type]


def test_a_batch_waits_for_each_environment_by_itself() -> None:
    queue = [(1, 2)] * 4
    first = at(scarce(clock_ms=1000), queue)
    assert (first.plan, first.scarce, first.relaxes_in_ms) == (None, {0: 1000, 2: 1000}, 10_000)
    both = at(scarce(clock_ms=5000, scarce={0: 1000, 2: 4000}), queue)
    assert both.relaxes_in_ms == 9000
    later = at(scarce(clock_ms=11_000, scarce={0: 1000, 2: 4000}), queue)
    assert (later.plan, later.scarce, later.relaxes_in_ms) == (None, {0: 1000, 2: 4000}, 3000)
    assert later.not_ready is not None
    assert "environment 2" in later.not_ready.detail
    kept = at(scarce(clock_ms=11_000, scarce={0: 1000, 2: 4000}), [*queue, (2, 2)])
    assert kept.plan is not None
    assert [group.environment for group in kept.plan.groups] == [1, 1, 1, 2]
    assert kept.plan.relaxed
    assert (kept.debts, kept.scarce) == ({0: 4}, {0: 1000})


def test_what_it_has_is_in_the_batch_where_it_fits() -> None:
    waited = scarce(clock_ms=11_000, scarce={0: 1000})
    some = at(waited, [(1, 2), (1, 2), (1, 2), (2, 2), (0, 2)])
    assert some.plan is not None
    assert some.debts == {0: 2}
    odd = at(waited, [(1, 2), (1, 2), (1, 2), (2, 2), (0, 1)])
    assert odd.plan is not None
    assert odd.debts == {0: 4}


def test_nobody_waits_for_an_environment_while_no_other_one_has_sent_its_part() -> None:
    """Of what no minimum takes, one sequence is wanted of the environment without a minimum."""
    assert at(scarce(clock_ms=1000), []).scarce == {}
    assert at(scarce(clock_ms=1000), [(0, 2), (2, 1)]).scarce == {}
    assert at(scarce(clock_ms=1000), [(1, 2), (2, 1)]).scarce == {0: 1000, 2: 1000}
    assert at(scarce(clock_ms=1000), [(1, 2), (2, 2)]).scarce == {0: 1000}
    before = {0: 1000}
    assert at(scarce(clock_ms=2000, scarce=before), []).scarce == before, "it is as silent as before"
    assert at(scarce(clock_ms=2000, scarce=before), [(0, 2)] * 2).scarce == {1: 2000, 2: 2000}
    assert at(scarce(clock_ms=2000, scarce=before), [(0, 2), (0, 2), (1, 2), (2, 2)]).scarce == {}


def test_a_silent_environment_without_a_minimum_is_noted_and_blocks_no_batch() -> None:
    view = replace(scarce(clock_ms=5000), environments={0: environment(0, 2), 1: environment(1, 2)})
    assert at(view, [(0, 2), (0, 2)]).scarce == {1: 5000}
    without = at(replace(view, scarce={1: 1000}), [(0, 2)] * 4)
    assert without.plan is not None
    assert (without.plan.relaxed, without.scarce) == (False, {1: 1000})
    with_it = at(replace(view, scarce={1: 1000}), [(1, 2), *[(0, 2)] * 3])
    assert with_it.scarce == {}


def test_without_the_setting_batches_wait_forever() -> None:
    forever = replace(scarce(clock_ms=100_000, scarce={0: 0, 2: 0}), policy=Policy())
    decision = at(forever, [(1, 2)] * 9)
    assert (decision.plan, decision.relaxes_in_ms, decision.scarce) == (None, None, {0: 0, 2: 0})


@examples(200)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([None, 0.01, 0.25]), st.sampled_from([None, 0.5])), max_size=30
    ),
    st.lists(st.tuples(st.integers(0, 29), st.integers(1, 5)), max_size=4),
)
@example([(2, None, None)] * 12, [(11, 2)] * 3)
@example([(2, None, None)] * 12 + [(2, 0.25, None)], [(11, 2)] * 3)
def test_the_first_environments_of_each_size_give_the_same_reason_as_all(
    made: list[tuple[int, float | None, float | None]], queue: list[tuple[int, int]]
) -> None:
    records = {
        number: environment(number, size, least, max_share=most) for number, (size, least, most) in enumerate(made)
    }
    bounds = LiveEnvironments(records).binding(8)
    lanes = lanes_of(queue)
    assume(select(8, lanes, bounds) is None)
    every = {number: (record.group_size,) for number, record in records.items()}
    assert explain(8, lanes, bounds, declared_sizes(records)) == explain(8, lanes, bounds, every)


def test_reasons_why_there_is_no_batch_share_what_they_compute_of_all_environments() -> None:
    """A worker may bring thousands of names, and a waiting trainer asks after each group."""
    records = {number: environment(number) for number in range(1000)}
    environments = EnvironmentsById(records, {}, dict.fromkeys(records, 1))
    view = replace(EMPTY, environments=environments)
    first = at(view, [(0, 4)])
    assert first.not_ready is not None
    assert first == at(replace(EMPTY, environments=dict(environments)), [(0, 4)])
    assert calls_of(lambda: at(view, [(0, 4)])) < 5 * len(records), "one that shares nothing takes 50 calls for each"
