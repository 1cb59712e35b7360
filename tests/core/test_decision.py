"""When a minimum may be relaxed, and what is owed afterwards."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from app.core.decision import Decision, decide
from app.core.model import Blocker, Lane, QueuedGroup, RunView
from tests.core.cost import calls_of
from tests.core.views import EMPTY, environment

TTL_MS = 120_000
PATIENCE_MS = 30_000


def lanes_of(queue: Sequence[tuple[int, int]]) -> list[Lane]:
    """Lanes of a queue given as (environment, size), oldest first."""
    heads: dict[tuple[int, int], list[QueuedGroup]] = {}
    for arrival, lane in enumerate(queue):
        heads.setdefault(lane, []).append(QueuedGroup(arrival, str(arrival)))
    return [Lane(*lane, len(groups), tuple(groups)) for lane, groups in heads.items()]


def three(**changes: object) -> RunView:
    """Three environments promised 0.3 of a batch of 8, all with groups of 4: two fit."""
    return replace(EMPTY, environments={n: environment(n, 4, 0.3) for n in range(3)}, **changes)  # type: ignore[arg-type]


def at(view: RunView, queue: Sequence[tuple[int, int]]) -> Decision:
    return decide(view, lanes_of(queue), TTL_MS, PATIENCE_MS)


def test_a_conflict_is_waited_out_then_relaxed_and_stays_relaxed() -> None:
    queue = [(0, 4), (1, 4), (2, 4)] * 4
    first = at(three(clock_ms=5_000), queue)
    assert first.not_ready is not None
    assert (first.not_ready.blocker, first.conflict_since_ms) == (Blocker.MINIMUMS_CONFLICT, 5_000)
    early = at(three(clock_ms=34_999, conflict_since_ms=5_000), queue)
    assert early.plan is None
    for clock_ms in (35_000, 35_001):
        late = at(three(clock_ms=clock_ms, conflict_since_ms=5_000, last_batch_ms=35_000), queue)
        assert late.plan is not None
        assert late.plan.relaxed
        assert late.plan.shortfall == {2: 2}
        assert late.debts == {2: 2}


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
    assert served.plan.shortfall == {1: 2, 2: 2}


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
    """Trainers ask several times a second, and so does whoever watches the status."""
    shares = {n: environment(n, 18, 1 / 8) for n in range(8)}
    config = replace(EMPTY.config, batch_size=256) if EMPTY.config else None
    view = replace(EMPTY, config=config, environments=shares, conflict_since_ms=0, clock_ms=PATIENCE_MS)
    queue = [(n, size) for _ in range(8) for size in (18, 20, 22, 34) for n in range(8)]
    assert at(view, queue).plan is not None
    waiting = replace(view, clock_ms=PATIENCE_MS - 1)
    assert at(waiting, queue).plan is None
    assert calls_of(lambda: at(waiting, queue)) < 0.5 * calls_of(lambda: at(view, queue))


def test_sizes_that_fit_no_batch_even_without_minimums_start_no_wait() -> None:
    decision = at(replace(EMPTY, environments={0: environment(0, 5)}), [(0, 5), (0, 5)])
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
