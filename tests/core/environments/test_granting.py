"""What an environment may start follows from all that its run holds, wherever that is."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.batches.leases import Lease, Portion
from app.core.environments.granting import TRIAL_PAUSE_MS, Demand
from app.core.numeric.subset_sum import reachable
from app.core.replay.mixing import fresh_needed
from app.core.runs.counters import Sent, Trained
from app.core.runs.settings import Policy, RunConfig
from app.core.runs.view import DemandView
from lachesis.wire.errors import RunNotFound
from tests.core.views import EMPTY, TTL_MS, environment

LEASE = Lease(
    "batch", "held", "worker", 1, 1, relaxed=False, contents=(Portion(None, 1, 2), Portion(0, 1, 4), Portion(7, 1, 2))
)


def test_queued_running_and_leased_groups_count_for_their_own_environment() -> None:
    """A batch of 8, three ahead: 24 are wanted, 12 of each of two environments of equal weight."""
    view = replace(
        EMPTY,
        policy=Policy(max_staleness=2),
        policy_version=5,
        environments={0: environment(0, group_size=2), 1: environment(1), 7: environment(7, left_ms=0)},
        lanes={(0, 2): 1, (1, 4): 1},
        buffers={(0, 1): 1},
        running={0: 1, 7: 50},
        leases=(LEASE,),
    )
    grant = Demand("run", view).of(0)
    assert (grant.credit.wanted, grant.credit.outstanding) == (12, 2 + 1 + 4 + 2)
    assert (grant.credit.sequences, grant.groups) == (3, 2), "the last group holds one more"
    assert (grant.horizon_batches, grant.policy_version) == (3, 5)
    other = Demand("run", view).of(1)
    assert (other.credit.outstanding, other.credit.sequences) == (4, 24 - 9 - 4 - 4), (
        "sequences without a live environment fill batches"
    )


def test_while_intake_is_paused_nobody_may_start_a_group() -> None:
    environments = {0: environment(0, group_size=2), 7: environment(7, left_ms=0)}
    view = replace(EMPTY, policy=Policy(intake_paused=True), environments=environments, running={0: 1})
    demand = Demand("run", view)
    for caller, running, outstanding in ((0, 3, 6), (0, None, 2), (7, 0, 0)):
        grant = demand.of(caller, running)
        assert (grant.groups, grant.credit.sequences, grant.credit.outstanding) == (0, 0, outstanding)
        assert grant.credit.reason == demand.who_must_act()
    assert "paused intake" in grant.credit.reason
    assert Demand("run", replace(view, lanes={(0, 7): 9}, running={})).of(0).groups == 0, "also to complete a batch"


def test_without_staleness_nobody_may_start_a_group_before_the_version_of_what_was_trained() -> None:
    """It would be too old for every batch."""
    trained = Trained(1, last_ms=EMPTY.clock_ms)
    view = replace(EMPTY, environments={0: environment(0, 8)}, policy=Policy(max_staleness=0), trained=trained)
    for lanes in ({}, {(0, 7): 2}):
        demand = Demand("run", replace(view, lanes=lanes))
        grant = demand.of(0)
        assert (grant.groups, grant.horizon_batches) == (0, 0)
        assert grant.credit.reason == demand.who_must_act()
    assert grant.credit.reason.startswith("the trainer acknowledged a batch and has set no policy version since 0")


def test_what_may_be_replayed_need_not_be_made() -> None:
    """Half of a batch of 8 is fresh, and of the batch with the trainer all but 4 sequences of environment 0."""
    lease = replace(LEASE, contents=(Portion(0, 2, 8),), replayed=(Portion(0, 1, 4),))
    own = {"policy": Policy(max_staleness=2, fresh_fraction=0.5), "environments": {0: environment(0)}}
    grant = Demand("run", replace(EMPTY, leases=(lease,), **own)).of(0)
    assert (grant.credit.wanted, grant.credit.outstanding, grant.credit.sequences) == (12, 4, 8)


def test_shares_are_those_of_the_fresh_part_of_a_batch() -> None:
    """Half of a batch of 8 is fresh. A maximum of a half is 2 of these 4 sequences, and a larger weight adds none."""
    capped = environment(0, weight=3.0, max_share=0.5)
    view = replace(EMPTY, policy=Policy(max_staleness=0, fresh_fraction=0.5))
    view = replace(view, environments={0: capped, 1: environment(1)})
    assert [Demand("run", view).of(n).credit.wanted for n in (0, 1)] == [2, 2]


def test_where_the_buffer_could_not_fill_a_batch_up_all_of_it_is_made() -> None:
    own = {"policy": Policy(max_staleness=0, fresh_fraction=0.5), "environments": {0: environment(0)}}
    view = replace(EMPTY, lanes={(0, 4): 1}, **own)
    assert [Demand("run", replace(view, unfilled=so)).of(0).groups for so in (False, True)] == [0, 1]


def test_an_environment_without_weight_makes_the_fresh_part_if_nobody_else_does() -> None:
    """Half of a batch of 8 is fresh. No batch has those 4 sequences without environment 0."""
    own = {"policy": Policy(max_staleness=1, fresh_fraction=0.5), "environments": {0: environment(0, 2, weight=0.0)}}
    view = replace(EMPTY, **own)
    demand = Demand("run", view)
    assert (demand.of(0).groups, demand.who_must_act()) == (2, "environment 0 (env0_0) must make 2 groups of 2")
    assert Demand("run", replace(view, running={0: 1})).of(0).groups == 1
    for there in ({"lanes": {(0, 2): 2}}, {"running": {0: 2}}):
        assert Demand("run", replace(view, **there)).of(0).groups == 0, "the buffer may fill the batch up"
    leased = replace(view, leases=(replace(LEASE, contents=(Portion(0, 4, 8),), deadline_ms=10_000),))
    assert (Demand("run", leased).who_must_act() or "").endswith("must make 2 groups of 2")


def test_the_fresh_part_is_larger_where_no_groups_have_its_size() -> None:
    """A quarter of a batch of 8 is fresh. Groups of 4 hold no 2 sequences, and two groups are a batch."""
    own = {"policy": Policy(max_staleness=1, fresh_fraction=0.25), "environments": {0: environment(0, 4, weight=0.0)}}
    assert Demand("run", replace(EMPTY, **own)).of(0).groups == 2


def test_only_the_fresh_part_is_made_while_an_environment_lacks_its_minimum() -> None:
    """Half of a batch of 8 is fresh. At least 1 of these 4 sequences is of environment 1, and none is there."""
    environments = {0: environment(0), 1: environment(1, 4, min_share=0.25)}
    policy = Policy(max_staleness=0, fresh_fraction=0.5)
    view = replace(EMPTY, policy=policy, environments=environments, lanes={(0, 1): 4}, unfilled=True)
    leased = replace(LEASE, contents=(Portion(1, 1, 4),))
    relaxing = policy.model_copy(update={"relax_scarce_after_s": 30.0})

    def wanted(now: DemandView) -> list[int]:
        return [Demand("run", now).of(n).credit.wanted for n in (0, 1)]

    fresh, whole = [2, 3], [3, 5]  # rounded up
    assert wanted(replace(view, unfilled=False)) == fresh
    assert wanted(view) == fresh, "environment 1 may start a group"
    assert wanted(replace(view, running={1: 1})) == fresh, "environment 1 runs a group"
    assert wanted(replace(view, leases=(leased,))) == whole, "environment 1 may start none, and runs none"
    assert wanted(replace(view, lanes={(0, 1): 4, (1, 4): 1})) == whole, "the buffer could not fill the rest"
    assert wanted(replace(view, policy=relaxing)) == whole, "a relaxed batch has fresh groups only"
    assert wanted(replace(view, conflict_since_ms=0)) == whole, "a relaxed batch has fresh groups only"
    impossible = {0: environment(0, 1, min_share=0.75), 1: environments[1]}  # 6 sequences and 4 are more than 8
    conflict = replace(view, environments=impossible)
    assert wanted(conflict) == wanted(replace(conflict, lanes={(0, 1): 4, (1, 4): 1})), "minimums will be relaxed"
    assert wanted(conflict) > wanted(replace(conflict, unfilled=False))


def test_a_leased_batch_takes_up_the_credits_of_one_batch_however_fresh() -> None:
    """Half of a batch of 8 is fresh, two ahead. The buffer was empty, so the first batch has 8 of the 8 sequences."""
    view = replace(EMPTY, policy=Policy(max_staleness=1, fresh_fraction=0.5), environments={0: environment(0, 4)})

    def may_start(*leases: Lease) -> int:
        return Demand("run", replace(view, leases=leases)).of(0).groups

    fresh = replace(LEASE, contents=(Portion(0, 2, 8),))
    mixed = replace(LEASE, contents=(Portion(0, 2, 8),), replayed=(Portion(0, 1, 4),))
    assert [may_start(), may_start(fresh), may_start(mixed), may_start(fresh, mixed)] == [2, 1, 1, 0]
    of_two = replace(fresh, contents=(Portion(0, 1, 4), Portion(None, 2, 4)))
    assert Demand("run", replace(view, leases=(of_two,))).of(0).credit.outstanding == 2


@given(
    batch_size=st.integers(1, 64),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    weights=st.lists(st.integers(1, 3), min_size=5, max_size=5),
    max_staleness=st.integers(0, 2),
    fresh_fraction=st.sampled_from((0.25, 0.5, 1.0)),
)
def test_all_allowed_groups_form_a_batch_unless_no_sizes_could(
    batch_size: int, sizes: list[int], weights: list[int], max_staleness: int, fresh_fraction: float
) -> None:
    """All that is wanted ahead is there, and no group beyond it but those that complete a batch."""
    assert EMPTY.config is not None
    sizes = [min(size, batch_size) for size in sizes]
    environments = {n: environment(n, size, weight=float(weights[n])) for n, size in enumerate(sizes)}
    policy = Policy(max_staleness=max_staleness, fresh_fraction=fresh_fraction)
    config = EMPTY.config.model_copy(update={"batch_size": batch_size})
    view = replace(EMPTY, environments=environments, policy=policy, config=config)
    made, completing = Counter[int](), Counter[int]()
    while any((grants := {n: Demand("run", view).of(n) for n in environments}).values()):
        number = next((n for n, grant in grants.items() if grant.groups), None)
        if number is None:
            break
        made[number] += 1
        completing[number] += "complete no batch: " in grants[number].credit.reason
        view = replace(view, lanes=Counter({(n, sizes[n]): groups for n, groups in made.items()}))
    wanted = (max_staleness + 1) * fresh_needed(batch_size, fresh_fraction)
    total = sum(groups * sizes[n] for n, groups in (made - completing).items())
    assert wanted <= total < wanted + max(sizes)
    by_size = Counter[int]()
    for n, groups in made.items():
        by_size[sizes[n]] += groups
    if fresh_fraction == 1 and not reachable(by_size, batch_size) >> batch_size & 1:
        assert not reachable(dict.fromkeys(sizes, batch_size), batch_size) >> batch_size & 1
        assert "complete no batch" in (Demand("run", view).who_must_act() or "")


def test_what_can_enter_no_batch_takes_no_credits() -> None:
    quarantined = replace(LEASE, state="quarantined")
    lanes = {(0, 9): 5, (None, 20): 1, (1, 5): 9}
    environments = {0: environment(0, 2), 1: environment(1, 5, max_share=0.5)}
    view = replace(EMPTY, lanes=lanes, leases=(quarantined,), environments=environments, policy=Policy(max_staleness=0))
    grant = Demand("run", view).of(0)
    assert (grant.groups, grant.credit.outstanding) == (4, 0)
    oversized = Demand("run", view).of(1)
    assert oversized.groups == 0
    assert oversized.credit.reason == "its groups have 5 sequences, and it may have at most 4 of a batch"


def test_who_sends_groups_that_fit_no_batch_may_start_one_at_a_time() -> None:
    """It declares groups of 4. After one of 24, the next may fit, so it is tried now and then."""
    view = replace(EMPTY, clock_ms=TRIAL_PAUSE_MS, environments={0: environment(0)}, lanes={(0, 24): 9, (0, 4): 1})
    tried = replace(view, sent={0: Sent(0, 24, 24)})
    assert Demand("run", tried).of(0).groups == 1
    assert Demand("run", tried).of(0, 1).groups == 0, "one runs"
    assert Demand("run", replace(tried, sent={0: Sent(1, 24, 24)})).of(0).groups == 0, "one has just come"
    assert Demand("run", replace(tried, policy=Policy(intake_paused=True))).of(0).groups == 0
    assert Demand("run", tried).of(0).credit.reason == (
        "its last group has 24 sequences, and it may have at most 8 of a batch: until a group fits, it may start one "
        "at a time, at most one every 1 s"
    )
    must = Demand("run", replace(tried, lanes={(0, 24): 9})).who_must_act()
    assert must == "environment 0 (env0_0) must make 2 groups of 4"
    fits = replace(view, sent={0: Sent(1, 4, 28)})
    assert Demand("run", fits).of(0).groups == 7, "four batches ahead"
    assert Demand("run", replace(tried, lanes={})).of(0).groups == 8, "its groups were deleted"
    larger = RunConfig(batch_size=24, max_token_len=8, num_steps=1)
    assert Demand("run", replace(tried, config=larger, lanes={(0, 24): 1})).of(0).groups == 18, (
        "its groups fit a larger batch"
    )


def test_others_make_the_part_of_an_environment_whose_groups_fit_no_batch() -> None:
    """Its running groups are not expected to fit either. It is asked for no group that completes a batch."""
    sent = {0: Sent(0, 24, 24)}
    environments = {0: environment(0, weight=2.0), 1: environment(1)}
    view = replace(EMPTY, policy=Policy(max_staleness=0), environments=environments, running={0: 1}, lanes={(0, 24): 1})
    assert Demand("run", view).of(1).groups == 1
    assert Demand("run", replace(view, sent=sent)).of(1).groups == 2
    completing = replace(view, sent=sent, lanes={(0, 24): 1, (1, 3): 2, (1, 1): 2})
    assert Demand("run", completing).of(1).groups == 0, "these groups are a batch"
    completing = replace(completing, lanes={(0, 24): 1, (1, 3): 4})
    assert Demand("run", completing).who_must_act() == "environment 1 (env1_0) must make 2 groups of 4"
    assert Demand("run", completing).of(1).groups == 2


def test_no_group_is_asked_for_while_each_batch_ahead_is_leased_or_being_completed() -> None:
    view = replace(EMPTY, lanes={(0, 7): 2}, environments={0: environment(0, 8)}, policy=Policy(max_staleness=0))
    assert Demand("run", view).of(0).groups == 1
    assert Demand("run", replace(view, running={0: 1})).of(0).groups == 0
    assert Demand("run", replace(view, leases=(LEASE,))).of(0).groups == 0
    held = replace(view, leases=(replace(LEASE, deadline_ms=EMPTY.clock_ms + 90_000),))
    must = "no group may start until a trainer acknowledges: 1 batch is leased, for 90 s more"
    assert Demand("run", held).who_must_act() == must
    assert Demand("run", replace(held, running={0: 1})).who_must_act() is None, "it may still arrive"
    assert Demand("run", replace(held, environments={})).who_must_act() is None, "groups may have no environment"
    sent = replace(view, leases=(replace(LEASE, state="sent"),))
    assert Demand("run", sent).who_must_act() is None, "Atropos trainers acknowledge with their next request"
    assert Demand("run", view).who_must_act() == "environment 0 (env0_0) must make a group of 8"


@pytest.mark.parametrize(
    ("leased", "groups", "must"),
    [
        (2, 1, "environment 0 (env0_0) must make a group of 8"),
        (3, 1, "environment 0 (env0_0) must make a group of 8"),
        (4, 0, "no group may start until a trainer acknowledges: 4 batches are leased, the first for 90 s more"),
    ],
)
def test_a_trainer_that_collects_batches_gets_the_groups_that_complete_the_next(
    leased: int, groups: int, must: str
) -> None:
    """Four batches of 8 are looked ahead. Three groups of 7 and two leased batches are more sequences than that."""
    lease = replace(LEASE, deadline_ms=EMPTY.clock_ms + 90_000)
    view = replace(EMPTY, lanes={(0, 7): 3}, environments={0: environment(0, 8)}, policy=Policy(max_staleness=3))
    demand = Demand("run", replace(view, leases=(lease,) * leased))
    assert demand.of(0).groups == groups
    assert demand.who_must_act() == must
    assert Demand("run", replace(demand.view, lanes={(0, 7): 3, (0, 8): 1})).of(0).groups == 0, "that is a batch"


def test_who_runs_the_most_is_named_while_nobody_may_start_a_group() -> None:
    """A worker that reports groups which it does not run takes the credits of all."""
    environments = {0: environment(0, group_size=8), 1: environment(1, group_size=4)}
    view = replace(EMPTY, environments=environments, running={0: 600, 1: 1000})
    demand = Demand("run", view)
    assert demand.of(0).groups == 0
    assert demand.who_must_act() == (
        "no group may start until running ones arrive; environment 0 (env0_0) runs the most, 600"
    )
    assert Demand("run", replace(view, lanes={(0, 8): 99, (1, 4): 99}, running={})).who_must_act() is None
    few = Demand("run", replace(view, running={1: 1}))
    assert few.of(0).groups > 0
    assert few.who_must_act() is None


def test_a_long_name_leaves_room_for_what_its_environment_must_do() -> None:
    one, other = (environment(number, group_size=8, name="n" * 4096) for number in (0, 1))
    named = f"({'n' * 77}...)"
    view = replace(EMPTY, lanes={(0, 7): 2}, environments={0: one}, policy=Policy(max_staleness=0))
    assert Demand("run", view).who_must_act() == f"environment 0 {named} must make a group of 8"
    busy = replace(EMPTY, environments={0: one, 1: other}, running={0: 2, 1: 1000})
    assert f"environment 1 {named} runs the most" in str(Demand("run", busy).who_must_act())


def test_a_batch_with_replayed_groups_may_also_be_fresh() -> None:
    """Groups of 24 and 32 never make the fresh 108 of a batch of 144, but six of 24 make all of it."""
    environments = {0: environment(0, 24), 1: environment(1, 32)}
    config = RunConfig(batch_size=144, max_token_len=8, num_steps=1)
    policy = Policy(fresh_fraction=0.75)
    view = replace(EMPTY, config=config, environments=environments, policy=policy)
    assert Demand("run", view).who_must_act() is None
    none = replace(view, config=config.model_copy(update={"batch_size": 100}))
    assert "groups of 24, 32, which complete no batch" in (Demand("run", none).who_must_act() or "")


def test_environments_that_batches_no_longer_wait_for_are_not_called_dead() -> None:
    view = replace(
        EMPTY,
        clock_ms=10 * TTL_MS,
        environments={0: environment(0, 4), 1: environment(1, 4, 0.5, members=1)},
        lanes={(0, 4): 1},
        scarce={1: 0},
        policy=Policy(relax_scarce_after_s=1.0),
    )
    said = "these live environments send too little, and batches no longer wait for them: environment 1 (env1_0). "
    assert Demand("run", view).who_must_act() == f"{said}Start another"
    dead = replace(view, environments={0: view.environments[0]}, scarce={})
    assert Demand("run", dead).who_must_act() == "no environment is alive: start one"


def test_a_run_to_which_nothing_came_waits_for_an_environment() -> None:
    assert Demand("run", EMPTY).who_must_act() == "no environment has joined: start one"
    totals = replace(EMPTY.totals, accepted_groups=1)
    assert Demand("run", replace(EMPTY, totals=totals)).who_must_act() is None, "groups may have no environment"


def test_an_environment_of_unreliable_sizes_is_asked_one_group_at_a_time() -> None:
    """It declared groups of 3, which complete nothing, and has sent one of 1."""
    view = replace(EMPTY, lanes={(0, 3): 2, (0, 1): 1}, environments={0: environment(0, 3)})
    view = replace(view, policy=Policy(max_staleness=0), running={0: 1})
    assert Demand("run", view).of(0).groups == 0
    grant = Demand("run", replace(view, lanes={(0, 3): 3, (0, 1): 1}, running={})).of(0)
    assert (grant.groups, grant.credit.sequences) == (1, 1)
    assert Demand("run", replace(view, lanes={(0, 3): 5, (0, 1): 1}, running={})).of(0).groups == 0


def test_the_heaviest_environment_is_asked_first_and_one_of_no_weight_last() -> None:
    environments = {n: environment(n, 8, weight=weight) for n, weight in enumerate((0.0, 1.0, 2.0))}
    view = replace(EMPTY, lanes={(0, 7): 9}, environments=environments, policy=Policy(max_staleness=0))
    assert [Demand("run", view).of(n).groups for n in environments] == [0, 0, 1]
    alone = replace(EMPTY, environments={0: environment(0, 8, weight=0.0)}, policy=Policy(max_staleness=0))
    assert Demand("run", alone).of(0).groups == 1


def test_credits_are_split_by_weights_below_one_in_proportion() -> None:
    """A batch of 8: weights of 0.1 and 0.3 are a quarter and three quarters."""
    environments = {0: environment(0, 1, weight=0.1), 1: environment(1, 1, weight=0.3)}
    view = replace(EMPTY, environments=environments, policy=Policy(max_staleness=0))
    assert [Demand("run", view).of(n).credit.wanted for n in environments] == [2, 6]


def test_a_negative_weight_counts_as_none() -> None:
    environments = {0: environment(0, 1, weight=-1.0), 1: environment(1, 1, weight=0.5)}
    view = replace(EMPTY, environments=environments, policy=Policy(max_staleness=0))
    assert [Demand("run", view).of(n).credit.wanted for n in environments] == [0, 8]
    assert [Demand("run", view).of(n).groups for n in environments] == [0, 8]


@pytest.mark.parametrize("declared", [1, 0, -1])
def test_groups_of_one_sequence_are_as_many_as_the_sequences(declared: int) -> None:
    """Atropos sends -1, or 0, where an environment does not say its group size: it counts as 1."""
    view = replace(EMPTY, environments={0: environment(0, declared)}, policy=Policy(max_staleness=0))
    allowance = Demand("run", view).of(0)
    assert (allowance.credit.sequences, allowance.groups) == (8, 8)


@pytest.mark.parametrize(("group_size", "groups"), [(8, 1), (9, 0)])
def test_a_group_may_be_as_large_as_a_batch_and_no_larger(group_size: int, groups: int) -> None:
    view = replace(EMPTY, environments={0: environment(0, group_size)}, policy=Policy(max_staleness=0))
    assert Demand("run", view).of(0).groups == groups


def test_who_asks_is_alive_however_long_it_was_silent() -> None:
    view = replace(EMPTY, clock_ms=10 * TTL_MS, environments={0: environment(0)}, policy=Policy(max_staleness=0))
    assert Demand("run", view).of(0).groups == 2


def test_nobody_gets_credits_in_a_run_that_is_not_configured() -> None:
    with pytest.raises(RunNotFound, match="no run nowhere"):
        Demand("nowhere", replace(EMPTY, config=None, environments={0: environment(0)})).of(0)


def test_who_declares_too_large_groups_may_make_the_size_that_completes_a_batch() -> None:
    """It made a group of 1 before, and is named as the one who must act: so it gets credits."""
    assert EMPTY.config is not None
    view = replace(
        EMPTY,
        config=EMPTY.config.model_copy(update={"batch_size": 2}),
        policy=Policy(max_staleness=0),
        environments={0: environment(0, group_size=3)},
        lanes={(0, 1): 1},
    )
    demand = Demand("run", view)
    assert "must make a group of 1" in (demand.who_must_act() or "")
    allowance = demand.of(0)
    assert (allowance.groups, allowance.credit.sequences) == (1, 1)
    none_queued = Demand("run", replace(view, lanes={})).of(0)
    assert none_queued.groups == 0
    assert "its groups have 3 sequences, and it may have at most 2" in none_queued.credit.reason
