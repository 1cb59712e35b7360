"""The batches to look ahead, from how trainers acknowledge batches and set policy versions."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.core.environments import horizon as rules
from app.core.environments.credits import Claim, RunCredits
from app.core.environments.horizon import UNLIMITED_HORIZON, VERSION_PATIENCE_MS, after_version, horizon_of
from app.core.model import Bounds
from app.core.runs.counters import Trained


def ahead(max_staleness: int | None, trained: Trained | None = None, clock_ms: int = 0) -> int:
    return horizon_of(max_staleness, trained or Trained(), clock_ms)


def allowed(batch_size: int, horizon: int, outstanding: int) -> int:
    return RunCredits(batch_size, horizon, {0: Claim(1.0, Bounds(), outstanding)}).of(0).sequences


def test_without_staleness_one_batch_is_wanted_and_without_a_limit_a_few_are() -> None:
    assert ahead(0) == 1
    assert ahead(None) == ahead(None, Trained(batches=9)) == UNLIMITED_HORIZON


def test_without_new_versions_a_trainer_gets_its_next_batch_after_a_pause() -> None:
    waiting = Trained(batches=2, last_ms=5000)
    assert [ahead(1, waiting, 5000 + VERSION_PATIENCE_MS + more) for more in (-1, 0)] == [0, 1]
    assert ahead(1, replace(waiting, batches=3)) == 2
    long_after = 5000 + 2 * VERSION_PATIENCE_MS
    assert [ahead(3, replace(waiting, batches=batches), long_after) for batches in range(5)] == [4, 3, 2, 1, 1]


def test_of_versions_that_begin_in_the_middle_of_a_batch_the_whole_one_counts() -> None:
    """Three batches and a version for every two of them: two versions may come until a group is used."""
    assert [ahead(staleness, Trained(batches_per_version=3, versions_per_batch=0.5)) for staleness in (1, 3)] == [3, 6]
    rounded = Trained(batches_per_version=25, versions_per_batch=7 / 25)
    assert rounded.batches_per_version * rounded.versions_per_batch > 7
    assert ahead(7, rounded) == 50


def test_versions_of_several_batches_that_come_one_by_one_count_up_to_one_for_each() -> None:
    version, trained = 0, Trained(batches=3)
    for expected in (1 / 3, 2 / 3, 1, 1):
        version, trained = version + 1, after_version(trained, version, version + 1, held=0)
        assert trained.versions_per_batch == expected


def test_a_version_that_is_not_above_the_last_one_begins_again() -> None:
    """What trainers do with versions stays known."""
    three = replace(after_version(Trained(batches=3), 0, 6, held=0), batches=1, last_ms=9)
    for version in (6, 2):
        assert after_version(three, 6, version, held=1) == Trained(batches_per_version=3, versions_per_batch=2)


def test_a_version_set_by_hand_is_no_acknowledgement() -> None:
    first = after_version(Trained(), 0, 4, held=1)
    given_back = after_version(first, 4, 5, held=0)
    assert (first.batches, given_back.batches) == (-1, 0)
    assert after_version(given_back, 5, 6, held=0) == given_back


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
