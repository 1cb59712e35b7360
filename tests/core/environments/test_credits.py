"""Credits: what may be started now so that it is still wanted when it is done."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.environments import credits as rules
from app.core.environments.credits import (
    UNLIMITED_HORIZON,
    VERSION_PATIENCE_MS,
    Claim,
    Credit,
    RunCredits,
    after_version,
    horizon_of,
    wanted_of_batch,
)
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


def allowed(batch_size: int, horizon: int, outstanding: int) -> int:
    return credit(batch_size, horizon, {0: claim(outstanding=outstanding)}, 0).sequences


def ahead(max_staleness: int | None, trained: Trained | None = None, clock_ms: int = 0) -> int:
    return horizon_of(max_staleness, trained or Trained(), clock_ms)


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
    horizon = ahead(max_staleness, trained)
    assert credit(batch_size, horizon, {0: claim(outstanding=outstanding)}, 0).sequences == max(0, areal)


def test_without_staleness_one_batch_is_wanted_and_without_a_limit_a_few_are() -> None:
    assert ahead(0) == 1
    assert ahead(None) == ahead(None, Trained(batches=9)) == UNLIMITED_HORIZON


def test_without_new_versions_a_trainer_gets_its_next_batch_after_a_pause() -> None:
    waiting = Trained(batches=2, last_ms=5000)
    assert [ahead(1, waiting, 5000 + VERSION_PATIENCE_MS + more) for more in (-1, 0)] == [0, 1]
    assert ahead(1, replace(waiting, batches=3)) == 2


def test_several_batches_a_version_are_wanted_ahead_once_that_was_seen() -> None:
    three = after_version(Trained(batches=3), 0, 1, held=0)
    assert (three.batches, three.batches_per_version) == (0, 3)
    assert [ahead(0, replace(three, batches=batches)) for batches in range(4)] == [3, 2, 1, 0]
    assert after_version(replace(three, batches=1), 1, 2, held=0).batches_per_version == 1


def test_trainers_in_the_docstring_lead_to_the_numbers_beside_each_event() -> None:
    examples = str(rules.__doc__).split("    event ")[1:]
    assert len(examples) == 2
    for example in examples:
        version, trained = 0, Trained()
        for event, *numbers in map(str.split, example.split("\n\n")[0].splitlines()[1:]):
            if event == "acknowledgement":
                trained = replace(trained, batches=trained.batches + 1)
            else:
                version, trained = version + 1, after_version(trained, version, version + 1, held=0)
            counted = trained.batches, trained.batches_per_version, trained.versions_per_batch, ahead(4, trained)
            assert counted == tuple(map(float, numbers)), example


@given(
    batches=st.integers(1, 5),
    versions=st.integers(1, 10),
    one_by_one=st.booleans(),
    prefetched=st.integers(0, 2),
    max_staleness=st.integers(0, 12),
)
def test_several_versions_of_several_batches_stop_no_trainer_and_leave_groups_fresh(
    batches: int, versions: int, one_by_one: bool, prefetched: int, max_staleness: int
) -> None:
    """A trainer acknowledges batches, sets versions, and so on. Each batch is made of the oldest groups."""
    batch_size, version, trained, queue = 2, 0, Trained(), list[int]()
    for cycle in range(max_staleness + 6):
        for _ in range(batches):
            while allowed(batch_size, ahead(max_staleness, trained), len(queue)):
                queue.append(version)
            assert cycle < 3 or len(queue) >= batch_size, "the trainer gets its next batch without a wait"
            queue += [version] * (batch_size - len(queue))  # after the wait that ends by itself
            fresh = [sampled for sampled in queue if version - sampled <= max_staleness]
            assert cycle <= max_staleness + 3 or fresh == queue
            queue = fresh[batch_size:]
            trained = replace(trained, batches=trained.batches + 1)
        for more in [1] * versions if one_by_one else [versions]:
            version, trained = version + more, after_version(trained, version, version + more, prefetched)


def test_several_versions_a_batch_are_expected_again_once_they_were_seen() -> None:
    four = after_version(Trained(batches=1), 0, 4, held=2)
    assert (four.batches, four.versions_per_batch) == (0, 4)
    assert [ahead(staleness, four) for staleness in (0, 3, 4, 7, 8)] == [1, 1, 2, 2, 3]
    first = after_version(Trained(), 0, 4, held=1)
    assert (first.batches, first.versions_per_batch) == (-1, 4), "the version came first"
    by_hand = after_version(four, 4, 1000, held=0)
    assert by_hand.versions_per_batch == 4
    assert after_version(replace(by_hand, batches=1), 1000, 1004, held=0).versions_per_batch == 4
    assert after_version(Trained(), 0, 1000, held=0).versions_per_batch == 1, "before the first batch"
    assert after_version(replace(four, batches=1), 4, 5, held=0).versions_per_batch == 1


@given(
    versions=st.integers(1, 6),
    are_set_first=st.booleans(),
    prefetched=st.integers(0, 3),
    max_staleness=st.integers(0, 20),
    batches=st.integers(4, 6),
)
def test_versions_that_are_set_one_by_one_count_as_those_that_are_set_at_once(
    versions: int, are_set_first: bool, prefetched: int, max_staleness: int, batches: int
) -> None:
    """After three batches, at each moment between a batch and the next."""
    version, trained = 0, Trained()
    for batch in range(batches):
        for step in ["ack", *["version"] * versions][:: -1 if are_set_first else 1]:
            if step == "ack":
                trained = replace(trained, batches=trained.batches + 1)
            else:
                held = prefetched + (1 if are_set_first else 0)
                version, trained = version + 1, after_version(trained, version, version + 1, held)
            if batch >= 3:
                behind = (step == "ack") - are_set_first  # until the acknowledgement, or until the first version
                assert ahead(max_staleness, trained) == max_staleness // versions + 1 - behind


@given(order=st.lists(st.sampled_from("AV"), max_size=40), held=st.integers(0, 2))
def test_one_cycle_with_more_versions_than_the_others_changes_no_credits(order: list[str], held: int) -> None:
    """A trainer sets a version for each batch, at most one of them before its acknowledgement."""
    version, acknowledged, trained = 0, 0, Trained()
    for step in order:
        if step == "A" and acknowledged <= version:
            acknowledged, trained = acknowledged + 1, replace(trained, batches=trained.batches + 1)
        if step == "V" and version <= acknowledged:
            version, trained = version + 1, after_version(trained, version, version + 1, max(1, held))
        assert trained.batches_per_version == 1
        assert trained.versions_per_batch <= 1


@given(
    max_staleness=st.integers(0, 9),
    versions=st.integers(1, 6),
    is_set_first=st.booleans(),
    group_size=st.sampled_from((1, 2, 4)),
)
def test_groups_within_credits_are_fresh_when_the_trainer_makes_several_versions_of_a_batch(
    max_staleness: int, versions: int, is_set_first: bool, group_size: int
) -> None:
    """A trainer takes the oldest groups, and trains on them one batch after the other."""
    batch_size, version, trained, queue = 4, 0, Trained(), list[int]()
    for batch in range(max_staleness + 8):
        while allowed(batch_size, ahead(max_staleness, trained), len(queue)):
            queue += [version] * group_size
        fresh = [sampled for sampled in queue if version - sampled <= max_staleness]
        assert batch <= max_staleness + 2 or fresh == queue, "only groups from before the second version are too old"
        queue = fresh[batch_size:]
        if not is_set_first:
            trained = replace(trained, batches=trained.batches + 1)
        trained = after_version(trained, version, version + versions, held=int(is_set_first))
        version += versions
        if is_set_first:
            trained = replace(trained, batches=trained.batches + 1)


@given(
    start=st.builds(
        Trained, batches=st.integers(-3, 9), batches_per_version=st.integers(1, 4), versions_per_batch=st.floats(0.1, 4)
    ),
    before=st.integers(0, 50),
    after=st.integers(0, 50),
    held=st.integers(0, 4),
)
def test_a_version_set_by_hand_leaves_no_more_behind_than_trainers_hold(
    start: Trained, before: int, after: int, held: int
) -> None:
    now = after_version(start, before, after, held)
    assert -held <= now.batches <= 0
    assert now.batches == 0 or after > before


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
        "the run wants 5 sequences of it for 1 batches; 12 are queued, leased or running; "
        "there is room again when a trainer acknowledges batches"
    )


def test_who_is_wanted_for_nothing_is_not_told_to_wait() -> None:
    nothing = credit(10, 1, {0: claim(weight=0), 1: claim()}, 0)
    assert nothing.reason == "the run wants 0 sequences of it for 1 batches; 0 are queued, leased or running"


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


@given(st.integers(1, 64), claim_sets)
def test_a_run_with_nothing_outstanding_wants_whole_batches_if_somebody_may_fill_them(
    batch_size: int, claims: dict[int, Claim]
) -> None:
    idle = {key: Claim(own.weight, own.bounds, 0) for key, own in claims.items()}
    wanted = sum(credit(batch_size, 1, idle, key).wanted for key in idle)
    if any(own.weight > 0 and own.bounds.maximum is None for own in idle.values()):
        assert wanted >= batch_size
