"""What all environments have in common is computed once, and gives each the answer that it would get alone."""

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.core.batches.selection import select
from app.core.environments.credits import Claim, RunCredits
from app.core.environments.granting import TRIAL_PAUSE_MS, Demand
from app.core.environments.live import EnvironmentsById, LiveEnvironments
from app.core.environments.pacing import Pacing
from app.core.environments.record import EnvironmentRecord
from app.core.model import Bounds, Lane, QueuedGroup
from app.core.runs.counters import Sent
from app.core.runs.settings import Policy
from app.core.runs.view import DemandView
from tests.core.views import EMPTY, TTL_MS, environment

NOW_MS = 5 * TTL_MS

shares = st.none() | st.sampled_from((0.25, 0.5, 1.0))
moments = st.none() | st.sampled_from((0, NOW_MS - TTL_MS, NOW_MS - 1))
ids = st.integers(0, 4)
counts = st.integers(0, 6)
lanes = st.dictionaries(st.tuples(st.none() | ids, st.integers(1, 9)), counts, max_size=6)


@st.composite
def views(draw: st.DrawFn) -> DemandView:
    """Draw a run with all kinds of environments: alive, silent, gone, awaited no longer."""
    environments = {}
    for key in draw(st.sets(ids, min_size=1)):
        fields: dict[str, Any] = {
            "group_size": draw(st.integers(1, 5)),
            "min_share": draw(shares),
            "max_share": draw(shares),
            "weight": draw(st.sampled_from((0.0, 1.0, 3.0))),
            "heard_ms": draw(moments),
            "left_ms": draw(moments),
            "members": draw(st.sampled_from((0, 0, 2))),
        }
        environments[key] = environment(key, **fields)
    scarce = draw(st.sets(st.sampled_from(sorted(environments))))
    last_groups = st.builds(Sent, st.sampled_from((NOW_MS - TRIAL_PAUSE_MS, NOW_MS)), st.integers(1, 10), st.just(9))
    return replace(
        EMPTY,
        clock_ms=NOW_MS,
        environments=environments,
        lanes=draw(lanes),
        buffers=draw(lanes),
        running=draw(st.dictionaries(st.sampled_from(sorted(environments)), counts)),
        sent=draw(st.dictionaries(st.sampled_from(sorted(environments)), last_groups)),
        scarce=dict.fromkeys(scarce, 0),
        policy=Policy(max_staleness=draw(st.none() | st.integers(0, 1)), relax_scarce_after_s=1.0),
    )


@given(views(), counts)
def test_running_groups_beside_the_view_count_as_if_it_had_them(view: DemandView, running: int) -> None:
    demand = Demand("run", view)
    for caller in view.environments:
        with_them = replace(view, running={**view.running, caller: running})
        assert demand.of(caller, running) == Demand("run", with_them, caller).of(caller)
        assert demand.of(caller) == Demand("run", view, caller).of(caller)
        older = demand.of(caller, running, is_new=False)
        assert older.groups in (0, demand.of(caller, running).groups)
        assert demand.of(caller, is_new=False) == demand.of(caller), "nothing differs"


@given(
    st.integers(1, 20),
    st.integers(0, 3),
    st.dictionaries(
        ids,
        st.builds(
            Claim,
            weight=st.sampled_from((0.0, 1.0, 3.0)),
            bounds=st.builds(Bounds, minimum=st.integers(0, 8), maximum=st.none() | st.integers(8, 20)),
            outstanding=st.integers(0, 40),
        ),
        min_size=1,
    ),
    st.integers(0, 20),
    st.integers(-20, 20),
)
def test_credits_of_a_changed_claim_need_no_new_computation(
    batch_size: int, horizon: int, claims: dict[int, Claim], others: int, more: int
) -> None:
    credits_ = RunCredits(batch_size, horizon, claims, others)
    assert credits_.is_exhausted() == all(credits_.of(key).sequences == 0 for key in claims)
    for key, claim in claims.items():
        changed = RunCredits(
            batch_size, horizon, {**claims, key: replace(claim, outstanding=claim.outstanding + more)}, others
        )
        assert credits_.of(key, more) == changed.of(key)
        assert credits_.is_exhausted(key, more) == changed.is_exhausted()


@given(views())
def test_the_queue_is_as_full_for_each_environment_as_if_it_alone_had_asked(view: DemandView) -> None:
    batch_size = 8
    pacing = Pacing(view)
    bounds = view.live.bounds(batch_size)
    minimums = {key: bound.minimum for key, bound in bounds.items()}
    largest = {key: batch_size if bound.maximum is None else bound.maximum for key, bound in bounds.items()}
    for caller, record in view.environments.items():
        waiting: dict[int | None, int] = {}
        for (owner, size), count in view.lanes.items():
            fits = size <= largest.get(-1 if owner is None else owner, batch_size)
            waiting[owner] = waiting.get(owner, 0) + size * count * fits
        above = {key: max(0, n - minimums.get(-1 if key is None else key, 0)) for key, n in waiting.items()}
        others = sum(sequences for key, sequences in above.items() if key != caller)
        assert pacing.of(caller).queue_size == (waiting.get(caller, 0) + others) // record.group_size


@given(views())
def test_records_joined_with_activity_when_they_are_read_are_those_of_the_view(view: DemandView) -> None:
    records = {key: replace(env, heard_ms=None, members=0) for key, env in view.environments.items()}
    heard = {key: env.heard_ms for key, env in view.environments.items() if env.heard_ms is not None}
    members = {key: env.members for key, env in view.environments.items() if env.members}
    environments = EnvironmentsById(records, heard, members)
    assert environments == view.environments
    assert (len(environments), list(environments)) == (len(records), list(records))
    live = replace(view, environments=environments).live.records
    assert live.keys() == {key for key, env in view.environments.items() if env.alive(NOW_MS, TTL_MS)}
    assert live == {key: records[key] for key in live}


@given(views(), st.lists(st.integers(0, 3 * TTL_MS), min_size=1))
def test_who_is_alive_is_computed_again_only_when_it_changes(view: DemandView, passed_ms: list[int]) -> None:
    records = {key: replace(env, heard_ms=None, members=0) for key, env in view.environments.items()}
    heard = {key: env.heard_ms for key, env in view.environments.items() if env.heard_ms is not None}
    members = {key: env.members for key, env in view.environments.items() if env.members}
    environments, before = EnvironmentsById(records, heard, members), None
    for clock_ms in sorted(NOW_MS + ms for ms in passed_ms):
        live = environments.live(clock_ms, TTL_MS)
        assert live.records.keys() == {key for key, env in view.environments.items() if env.alive(clock_ms, TTL_MS)}
        if before is not None:
            assert (live is before) == (live.records == before.records)
        before = live


@given(views(), st.integers(1, 12))
def test_environments_without_shares_need_no_bounds_of_their_own(view: DemandView, batch_size: int) -> None:
    arrivals = itertools.count()
    queue = [
        Lane(*lane, groups, tuple(QueuedGroup(next(arrivals), f"g{lane}{n}") for n in range(groups)))
        for lane, groups in view.lanes.items()
    ]
    live = view.live
    assert live.binding(batch_size).items() <= live.bounds(batch_size).items()
    found = select(batch_size, queue, live.binding(batch_size))
    assert found == select(batch_size, queue, live.bounds(batch_size))


def test_shares_that_allow_every_number_of_sequences_do_not_bind() -> None:
    free = {0: environment(0), 1: environment(1, max_share=1.0), 2: environment(2, min_share=0.01)}
    limited = {3: environment(3, max_share=0.5), 4: environment(4, min_share=0.5)}
    assert LiveEnvironments(free | limited).binding(8) == {3: Bounds(0, 4), 4: Bounds(4)}


def test_an_unknown_environment_is_not_there() -> None:
    record: EnvironmentRecord = environment(3)
    environments = EnvironmentsById({3: record}, {}, {})
    assert 3 in environments
    assert environments.get(4) is None
