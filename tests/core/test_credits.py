"""Credits: what may be started now so that it is still wanted when it is done."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.credits import UNLIMITED_HORIZON, Claim, credit, horizon_of
from app.core.model import Bounds

claim_sets = st.dictionaries(
    st.integers(0, 5),
    st.builds(
        Claim,
        weight=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        bounds=st.builds(Bounds, minimum=st.integers(0, 8), maximum=st.none() | st.integers(8, 64)),
        in_hand=st.integers(0, 100),
    ),
    min_size=1,
)


def claim(weight: float = 1.0, minimum: int = 0, maximum: int | None = None, in_hand: int = 0) -> Claim:
    return Claim(weight, Bounds(minimum, maximum), in_hand)


def test_alone_it_is_areals_rule() -> None:
    """(max_staleness + version + 1) * batch_size - (accepted + running), where accepted counts from the beginning."""
    batch_size, max_staleness, version, accepted, running = 64, 3, 10, 700, 40
    areal = (max_staleness + version + 1) * batch_size - (accepted + running)
    in_hand = accepted - version * batch_size + running
    assert credit(batch_size, horizon_of(max_staleness), {0: claim(in_hand=in_hand)}, 0).sequences == areal


def test_without_staleness_one_batch_is_wanted_and_without_a_limit_a_few_are() -> None:
    assert horizon_of(0) == 1
    assert horizon_of(None) == UNLIMITED_HORIZON


def test_what_no_minimum_takes_is_split_by_weight() -> None:
    claims = {0: claim(weight=1.0), 1: claim(weight=3.0), 2: claim(weight=0.0, minimum=20)}
    assert [credit(100, 1, claims, key).sequences for key in claims] == [20, 60, 20]


def test_what_a_maximum_cuts_off_goes_to_the_others() -> None:
    claims = {0: claim(maximum=10), 1: claim(), 2: claim()}
    assert [credit(100, 1, claims, key).sequences for key in claims] == [10, 45, 45]


def test_who_has_sent_too_much_gets_none_and_says_why() -> None:
    nothing = credit(10, 1, {0: claim(in_hand=12), 1: claim()}, 0)
    assert (nothing.sequences, nothing.wanted, nothing.in_hand) == (0, 5, 12)
    assert "in hand: 12" in nothing.reason


def test_what_others_sent_too_much_does_not_break_a_promise() -> None:
    claims = {0: claim(in_hand=200), 1: claim(minimum=25)}
    assert credit(100, 2, claims, 1).sequences == 50
    assert credit(100, 2, {**claims, 1: claim()}, 1).sequences == 0
    assert "next 2 batches" in credit(100, 2, {**claims, 1: claim()}, 1).reason


def test_groups_nobody_owns_fill_batches_too() -> None:
    assert credit(100, 1, {0: claim()}, 0, others_in_hand=70).sequences == 30


@given(st.integers(1, 64), st.integers(1, 4), claim_sets, st.integers(0, 64))
def test_all_credits_together_overshoot_the_horizon_by_rounding_and_promises_only(
    batch_size: int, horizon: int, claims: dict[int, Claim], others: int
) -> None:
    credits_ = {key: credit(batch_size, horizon, claims, key, others) for key in claims}
    for key, given_ in credits_.items():
        assert 0 <= given_.sequences <= max(0, given_.wanted - claims[key].in_hand)
    minimums = sum(own.bounds.minimum for own in claims.values())
    wanted = sum(given_.wanted for given_ in credits_.values())
    assert wanted <= horizon * (max(batch_size, minimums) + len(claims))


@given(st.integers(1, 64), claim_sets)
def test_a_run_with_nothing_in_hand_wants_whole_batches_if_somebody_may_fill_them(
    batch_size: int, claims: dict[int, Claim]
) -> None:
    idle = {key: Claim(own.weight, own.bounds, 0) for key, own in claims.items()}
    wanted = sum(credit(batch_size, 1, idle, key).wanted for key in idle)
    if any(own.weight > 0 and own.bounds.maximum is None for own in idle.values()):
        assert wanted >= batch_size
