"""What cannot work is found before anybody waits for it."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.environments.shares import ShareLimits
from app.core.runs.counters import RunTotals, Sent
from app.core.runs.settings import Policy
from app.core.runs.view import RunView
from app.core.runs.warnings import (
    WarningKind,
    groups_too_large,
    minimums_above_one,
    sizes_do_not_fit,
    warnings_of,
)
from tests.core.views import EMPTY, TTL_MS, environment
from tests.properties import examples

BEGUN = replace(EMPTY, totals=RunTotals(accepted_groups=1))

sizes_of_a_run = st.dictionaries(
    st.sampled_from([None, 0, 1]), st.sets(st.integers(1, 7), min_size=1, max_size=3), min_size=1
)
maximums = st.dictionaries(st.integers(0, 1), st.integers(0, 9))


def largest(key: int | None, batch_size: int, limits: Mapping[int, int]) -> int:
    return batch_size if key is None else min(batch_size, limits.get(key, batch_size))


def fits(batch_size: int, sizes: Mapping[int | None, set[int]], limits: Mapping[int, int]) -> bool:
    """Try every number of groups of every size."""
    totals = []
    for key, own in sizes.items():
        counts = product(*(range(batch_size // size + 1) for size in own))
        got = {sum(n * size for n, size in zip(numbers, own, strict=True)) for numbers in counts}
        totals.append({total for total in got if total <= largest(key, batch_size, limits)})
    return any(sum(one) == batch_size for one in product(*totals))


@examples(300)
@given(st.integers(1, 10), sizes_of_a_run, maximums)
def test_sizes_are_warned_of_if_and_only_if_no_number_of_groups_fits(
    batch_size: int, sizes: dict[int | None, set[int]], limits: dict[int, int]
) -> None:
    usable = any(size <= largest(key, batch_size, limits) for key, own in sizes.items() for size in own)
    warned = sizes_do_not_fit(batch_size, sizes, limits)
    never = warned is not None and "however many arrive" in warned.detail
    assert never == (usable and not fits(batch_size, sizes, limits))


@examples(300)
@given(st.integers(1, 10), sizes_of_a_run)
def test_groups_that_no_batch_can_contain_are_warned_of(batch_size: int, sizes: dict[int | None, set[int]]) -> None:
    known = sorted({size for own in sizes.values() for size in own})
    counts = product(*(range(batch_size // size + 1) for size in known))
    batches = [one for one in counts if sum(n * size for n, size in zip(one, known, strict=True)) == batch_size]
    useless = {size for at, size in enumerate(known) if size <= batch_size and not any(one[at] for one in batches)}
    warned = sizes_do_not_fit(batch_size, sizes, {})
    assert (set() if warned is None else set(warned.environments)) == {
        key for key, own in sizes.items() if own & useless
    }


def test_the_warning_of_useless_groups_names_their_size() -> None:
    warned = sizes_do_not_fit(8, {0: {5}, 1: {2}}, {})
    assert warned is not None
    assert "no batch of 8 sequences can contain groups of 5" in warned.detail
    assert warned.environments == (0,)


@examples(200)
@given(st.integers(1, 10), sizes_of_a_run, maximums)
def test_environments_whose_groups_fit_no_batch_are_named(
    batch_size: int, sizes: dict[int | None, set[int]], limits: dict[int, int]
) -> None:
    expected = {key for key, own in sizes.items() if max(own) > largest(key, batch_size, limits)}
    warned = groups_too_large(batch_size, sizes, limits)
    assert (set() if warned is None else set(warned.environments)) == expected


@pytest.mark.parametrize(("minimums", "warned"), [((0.1, 0.2, 0.7), False), ((0.5, 0.6), True), ((1.0,), False)])
def test_minimums_may_sum_to_one_and_no_more(minimums: tuple[float, ...], warned: bool) -> None:
    assert (minimums_above_one({key: ShareLimits(share) for key, share in enumerate(minimums)}) is not None) == warned


def kinds(view: RunView) -> list[WarningKind]:
    return [warning.kind for warning in warnings_of(view)]


def test_the_warning_of_too_large_groups_names_no_size_that_fits() -> None:
    warned = groups_too_large(8, {0: {3, 8, 12}}, {})
    assert warned is not None
    assert "groups of environment 0 have 12 sequences" in warned.detail


def test_a_maximum_that_no_group_fits_into_is_named_as_the_cause() -> None:
    warned = groups_too_large(8, {0: {1}}, {0: 0})
    assert warned is not None
    assert warned.detail.endswith("Send smaller groups or raise max_share or batch_size")


def test_each_warning_says_what_is_wrong_with_the_values_and_what_to_do() -> None:
    view = replace(
        BEGUN,
        environments={0: environment(0, group_size=12, min_share=0.5), 1: environment(1, group_size=3, min_share=0.75)},
        lanes={(None, 6): 1},
        dropped={("too_long", 1): 2, ("stale", 0): 5},
        sent={0: Sent(0, 12, 60)},
        last_batch_ms=0,
    )
    assert [warning.detail for warning in warnings_of(view)] == [
        "groups are too large for any batch: groups of environment 0 (env0_0) have 12 sequences, more than the 8 "
        "that fit into a batch of 8. Send smaller groups or raise batch_size",
        "no groups of the sizes that environments declared or sent (3, 6) sum to exactly 8 sequences, however many "
        "arrive. Send other sizes or change batch_size",
        "minimum shares sum to 1.25, more than 1: environment 0 (env0_0) 0.5, environment 1 (env1_0) 0.75. They are "
        "scaled down in proportion; lower some",
        "2 groups were dropped because a sequence has more than 512 tokens (max_sequence_tokens, or max_token_len of "
        "Atropos). Send shorter sequences or raise the limit",
        "no batch ever took a group of these environments, and their groups became too old: 5 groups of environment "
        "0 (env0_0). Give them a min_share, send groups of other sizes, or raise max_staleness or max_age_s",
        "the minimum shares of live environments leave 0 of 8 sequences in a batch, so these groups wait: 1 group "
        "without an environment. Lower a min_share, or delete these groups",
    ]


def test_environments_that_are_gone_do_not_count_but_their_queued_groups_do() -> None:
    gone = {key: environment(key, group_size=12, min_share=0.8, heard_ms=-2 * TTL_MS) for key in range(2)}
    assert kinds(replace(BEGUN, environments=gone)) == []
    assert kinds(replace(BEGUN, environments=gone, lanes={(0, 12): 1})) == [WarningKind.GROUPS_TOO_LARGE]
    assert kinds(replace(BEGUN, config=None, lanes={(0, 12): 1})) == []


def test_sizes_are_not_warned_of_where_the_replay_buffer_fills_batches_up() -> None:
    view = replace(BEGUN, lanes={(None, 3): 1})
    assert kinds(view) == [WarningKind.SIZES_DO_NOT_FIT]
    assert kinds(replace(view, policy=Policy(fresh_fraction=0.5))) == []


def test_sizes_are_not_warned_of_before_the_first_group_because_others_may_still_join() -> None:
    first = {0: environment(0, group_size=3, max_share=0.5)}
    assert kinds(replace(EMPTY, environments=first)) == []
    (warned,) = warnings_of(replace(BEGUN, environments=first))
    assert warned.detail == (
        "no groups of the sizes that environments declared or sent (3) sum to exactly 8 sequences within every "
        "max_share, however many arrive. Send other sizes or change max_share or batch_size"
    )


def test_an_environment_that_may_have_little_of_a_batch_is_warned_of_larger_groups() -> None:
    capped = environment(0, group_size=6, max_share=0.5)
    view = replace(BEGUN, environments={0: capped, 1: environment(1, group_size=8)})
    assert kinds(view) == [WarningKind.GROUPS_TOO_LARGE]
    alone = replace(BEGUN, environments={0: replace(capped, group_size=2)})
    assert kinds(alone) == [WarningKind.SIZES_DO_NOT_FIT], "half of each batch is nobody's"
    none = replace(BEGUN, environments={0: replace(capped, max_share=0.0)})
    assert kinds(none) == [WarningKind.GROUPS_TOO_LARGE]


def starved(served: Mapping[int | None, int], dropped: Mapping[tuple[str, int | None], int]) -> RunView:
    """Two environments that have sent much. Batches formed since they joined."""
    sent = {key: Sent(0, 4, 1000) for key in range(2)}
    environments = {0: environment(0), 1: environment(1)}
    return replace(BEGUN, environments=environments, served=served, dropped=dropped, sent=sent, last_batch_ms=0)


def never_taken_of(view: RunView) -> list[tuple[int | None, ...]]:
    return [one.environments for one in warnings_of(view) if one.kind is WarningKind.NEVER_TAKEN]


@pytest.mark.parametrize(
    ("served", "dropped", "warned"),
    [
        ({}, {("stale", 0): 2}, True),
        ({}, {("stale", 0): 1, ("expired", 0): 1}, True),
        ({1: 8, None: 8}, {("stale", 0): 2}, True),
        ({}, {("stale", 0): 1}, False),
        ({}, {("too_long", 0): 1, ("stale", 0): 1}, False),
        ({0: 4}, {("stale", 0): 100}, False),
        ({}, {("stale", 7): 100, ("stale", None): 100}, False),
    ],
)
def test_an_environment_whose_groups_all_become_too_old_is_named(
    served: dict[int | None, int], dropped: dict[tuple[str, int | None], int], warned: bool
) -> None:
    assert never_taken_of(starved(served, dropped)) == ([(0,)] if warned else [])


def test_groups_that_were_too_old_on_arrival_say_nothing_about_shares() -> None:
    view = starved({1: 8}, {("stale", 0): 100})
    stored = {count: replace(view, sent={0: Sent(0, 4, count)}) for count in (4, 8, 12)}
    assert never_taken_of(replace(view, sent={})) == []
    assert never_taken_of(stored[4]) == []
    assert never_taken_of(stored[8]) == [(0,)]
    assert never_taken_of(replace(stored[12], lanes={(0, 4): 2})) == [], "two of three groups still wait"
    assert never_taken_of(replace(stored[12], lanes={(1, 4): 2})) == [(0,)]


def test_an_environment_is_not_named_if_no_batch_formed_since_it_joined() -> None:
    view = starved({1: 8}, {("expired", 0): 100})
    late = replace(view, environments={0: environment(0, registered_ms=5)}, clock_ms=9)
    assert never_taken_of(replace(view, last_batch_ms=None)) == []
    assert never_taken_of(replace(late, last_batch_ms=4)) == []
    assert never_taken_of(replace(late, last_batch_ms=6)) == [(0,)]


def test_groups_of_an_environment_that_left_may_have_no_room_beside_the_minimums_of_others() -> None:
    """Two minimums of a half fill a batch of 8. The groups take room in the queue, and no batch takes them."""
    environments = {0: environment(0, left_ms=0), 1: environment(1, 4, 0.5), 2: environment(2, 4, 0.5)}
    view = replace(BEGUN, environments=environments, lanes={(0, 2): 3, (1, 4): 1, (None, 1): 1, (0, 9): 1})

    def found(now: RunView) -> list[str]:
        return [one.detail for one in warnings_of(now) if one.kind is WarningKind.NO_ROOM_BESIDE_MINIMUMS]

    assert found(view) == [
        "the minimum shares of live environments leave 0 of 8 sequences in a batch, so these groups wait: 1 group "
        "without an environment, 3 groups of environment 0 (env0_0). Lower a min_share, or delete these groups"
    ]
    lower = replace(view, environments={**environments, 2: environment(2, 4, 0.25)})
    assert found(lower) == []
    assert found(replace(lower, lanes={(0, 3): 1}))[0].count("leave 2 of 8 sequences") == 1
    assert found(replace(lower, lanes={(1, 5): 1})) == [], "it has a minimum of its own: minimums are relaxed for it"
    assert found(replace(view, policy=Policy(fresh_fraction=0.5))) == []


def test_a_warning_about_many_environments_names_some() -> None:
    many = {key: environment(key, group_size=9, min_share=0.5) for key in range(100)}
    dropped: dict[tuple[str, int | None], int] = {("stale", key): 1 for key in many}
    sent = {key: Sent(0, 9, 9) for key in many}
    view = replace(BEGUN, environments=many, dropped=dropped, sent=sent, last_batch_ms=0)
    assert len(warnings_of(view)) == 3
    assert all(len(warning.detail) < 900 for warning in warnings_of(view))
