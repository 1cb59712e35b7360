"""Credits: what may be started now so that it is still wanted when it is done."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.environments.credits import Claim, Credit, RunCredits, wanted_of_batch
from app.core.environments.horizon import after_version, horizon_of
from app.core.model import Bounds
from app.core.runs.counters import Trained

claim_sets = st.dictionaries(
    st.integers(0, 5),
    st.builds(
        Claim,
        weight=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        bounds=st.builds(Bounds, minimum=st.integers(0, 8), maximum=st.none() | st.integers(8, 64)),
        outstanding=st.integers(0, 100),
    ),
    min_size=1,
)


def claim(weight: float = 1.0, minimum: int = 0, maximum: int | None = None, outstanding: int = 0) -> Claim:
    return Claim(weight, Bounds(minimum, maximum), outstanding)


def credit(batch_size: int, horizon: int, claims: dict[int, Claim], caller: int, others_outstanding: int = 0) -> Credit:
    return RunCredits(batch_size, horizon, claims, others_outstanding).of(caller)


@given(
    max_staleness=st.integers(0, 3),
    batches=st.lists(st.sampled_from(["version last", "version first"]), max_size=8),
    moment=st.sampled_from(["taken", "acknowledged", "version set", "both"]),
    waiting=st.integers(0, 20),
    running=st.integers(0, 20),
)
def test_alone_it_is_areals_rule(
    max_staleness: int, batches: list[str], moment: str, waiting: int, running: int
) -> None:
    """(max_staleness + version + 1) * batch_size - (accepted + running), where accepted counts from the beginning.

    At any moment between a batch and the next, whether its version is set before or after its acknowledgement.
    """
    batch_size, version, trained, held = 8, 0, Trained(), 0
    for order in batches:
        held += 1
        for what in ("ack", "version") if order == "version last" else ("version", "ack"):
            if what == "ack":
                held, trained = held - 1, replace(trained, batches=trained.batches + 1)
            else:
                version, trained = version + 1, after_version(trained, version, version + 1, held)
    done = len(batches)
    if moment != "both":
        held, done = held + 1, done + 1
    if moment == "acknowledged":
        held, trained = held - 1, replace(trained, batches=trained.batches + 1)
    if moment == "version set":
        version, trained = version + 1, after_version(trained, version, version + 1, held)
    accepted = done * batch_size + waiting
    areal = (max_staleness + version + 1) * batch_size - (accepted + running)
    outstanding = held * batch_size + waiting + running
    horizon = horizon_of(max_staleness, trained, 0)
    assert credit(batch_size, horizon, {0: claim(outstanding=outstanding)}, 0).sequences == max(0, areal)


def test_what_no_minimum_takes_is_split_by_weight() -> None:
    claims = {0: claim(weight=1.0), 1: claim(weight=3.0), 2: claim(weight=0.0, minimum=20)}
    assert [credit(100, 1, claims, key).sequences for key in claims] == [20, 60, 20]


def test_what_a_maximum_cuts_off_goes_to_the_others() -> None:
    claims = {0: claim(maximum=10), 1: claim(), 2: claim()}
    assert [credit(100, 1, claims, key).sequences for key in claims] == [10, 45, 45]


def test_who_has_sent_too_much_gets_none_and_says_why() -> None:
    nothing = credit(10, 1, {0: claim(outstanding=12), 1: claim()}, 0)
    assert (nothing.sequences, nothing.wanted, nothing.outstanding) == (0, 5, 12)
    assert nothing.reason == (
        "the run wants 5 of its sequences for 1 batch; 12 are queued, leased or running; "
        "there is room again when a trainer acknowledges batches"
    )


def test_who_is_wanted_for_nothing_is_not_told_to_wait() -> None:
    nothing = credit(10, 1, {0: claim(weight=0), 1: claim()}, 0)
    assert nothing.reason == "the run wants 0 of its sequences for 1 batch; 0 are queued, leased or running"


def test_what_others_sent_too_much_does_not_break_a_promise() -> None:
    claims = {0: claim(outstanding=200), 1: claim(minimum=25)}
    assert credit(100, 2, claims, 1).sequences == 50
    assert credit(100, 2, {**claims, 1: claim()}, 1).sequences == 0
    assert credit(100, 2, {**claims, 1: claim()}, 1).reason == (
        "all 200 sequences of the next 2 batches are queued, leased or running; "
        "there is room again when a trainer acknowledges batches"
    )


def test_groups_nobody_owns_fill_batches_too() -> None:
    assert credit(100, 1, {0: claim()}, 0, others_outstanding=70).sequences == 30


def test_what_no_batch_can_take_leaves_room_for_others() -> None:
    claims = {0: claim(outstanding=900, maximum=40), 1: claim(), 2: claim(minimum=25, outstanding=25)}
    assert credit(100, 1, claims, 1, others_outstanding=900).sequences == 0
    assert credit(100, 1, claims, 1).sequences == 25
    promised = {0: claim(minimum=50), 1: claim(minimum=20, outstanding=20)}
    assert credit(100, 1, promised, 0, others_outstanding=900).sequences == 50
    assert credit(100, 1, {0: claim(minimum=50, outstanding=50), 1: claim()}, 1, others_outstanding=900).sequences == 0


@given(st.integers(1, 64), st.integers(1, 4), claim_sets, st.integers(0, 64))
def test_all_credits_together_overshoot_the_horizon_by_rounding_and_promises_only(
    batch_size: int, horizon: int, claims: dict[int, Claim], others: int
) -> None:
    credits_ = {key: credit(batch_size, horizon, claims, key, others) for key in claims}
    for key, given_ in credits_.items():
        assert 0 <= given_.sequences <= max(0, given_.wanted - claims[key].outstanding)
    minimums = sum(own.bounds.minimum for own in claims.values())
    wanted = sum(given_.wanted for given_ in credits_.values())
    assert wanted <= horizon * (max(batch_size, minimums) + len(claims))


@pytest.mark.parametrize(("batch_size", "weights"), [(2, [1e308] * 2), (1, [1e308] * 2), (8, [2.1e307] * 9)])
def test_weights_whose_sum_is_infinite_share_like_any_equal_ones(batch_size: int, weights: list[float]) -> None:
    """No service takes such weights any more. A run may still have them."""
    found = wanted_of_batch(batch_size, {key: claim(weight) for key, weight in enumerate(weights)})
    assert found == wanted_of_batch(batch_size, {key: claim(1.0) for key in range(len(weights))})


def test_a_weight_near_zero_takes_nothing_and_breaks_nothing() -> None:
    assert wanted_of_batch(8, {0: claim(1.0), 1: claim(5e-324)}) == {0: 8, 1: 0}


@given(st.integers(1, 64), claim_sets)
def test_a_run_with_nothing_outstanding_wants_whole_batches_if_somebody_may_fill_them(
    batch_size: int, claims: dict[int, Claim]
) -> None:
    idle = {key: Claim(own.weight, own.bounds, 0) for key, own in claims.items()}
    wanted = sum(credit(batch_size, 1, idle, key).wanted for key in idle)
    if any(own.weight > 0 and own.bounds.maximum is None for own in idle.values()):
        assert wanted >= batch_size


@given(
    minimum=st.integers(1, 8),
    horizon=st.integers(1, 4),
    leased=st.lists(st.integers(0, 8), max_size=4),
    waiting=st.integers(0, 40),
    others=st.integers(0, 64),
)
def test_an_environment_may_make_its_minimum_of_each_batch_that_no_trainer_holds(
    minimum: int, horizon: int, leased: list[int], waiting: int, others: int
) -> None:
    """Whatever it had in the batches that a trainer holds, and whatever others have."""
    own = Claim(1.0, Bounds(minimum), sum(leased) + waiting, sum(leased))
    claims = {0: own, 1: claim(outstanding=others)}
    granted = RunCredits(8, horizon, claims, leased_batches=len(leased)).of(0).sequences
    assert waiting + granted >= max(0, horizon - len(leased)) * minimum
