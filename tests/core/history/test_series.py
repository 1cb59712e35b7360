"""Spans add up to what happened in them together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.history.series import (
    MOST_CHARTED_ENVIRONMENTS,
    OTHERS,
    Facts,
    HistorySpan,
    Tally,
    added,
    busiest,
    with_series,
)
from app.core.history.sketch import Sketch

happenings = st.lists(
    st.tuples(st.sampled_from(["", "math", "code"]), st.integers(0, 5), st.none() | st.floats(-10, 10)), max_size=30
)
"""Of each: the environment, a count, and a value."""


def tallied(events: list[tuple[str, int, float | None]]) -> HistorySpan:
    tally = Tally()
    for environment, count, value in events:
        tally.note(environment, {"groups": count}, {"reward": [value]})
        tally.span.run.measure("queued_groups", count)
        tally.span.run.lasts["step"] = count
    return tally.close()


@given(st.lists(happenings, max_size=4))
def test_spans_add_up(parts: list[list[tuple[str, int, float | None]]]) -> None:
    every = [event for part in parts for event in part]
    total = added(map(tallied, parts))
    for name in ("", "math", "code"):
        own = [event for event in every if event[0] == name]
        facts = total.environments.get(name, Facts())
        assert facts.counts.get("groups", 0) == sum(count for _, count, _ in own)
        values = [value for _, _, value in own if value is not None]
        assert facts.sketches.get("reward", Sketch()).count == len(values)
    assert total.run.counts.get("groups", 0) == sum(count for _, count, _ in every)
    if every:
        assert total.run.means["queued_groups"] == (sum(count for _, count, _ in every), len(every))
        assert total.run.lasts["step"] == every[-1][1]
    whole = tallied(every)
    assert {name: facts.counts for name, facts in total.environments.items()} == {
        name: facts.counts for name, facts in whole.environments.items()
    }


def test_what_a_later_span_does_not_know_stays_as_it_was() -> None:
    facts = Facts(lasts={"step": 1, "version": 5}, texts={"waiting": "before", "held": "kept"})
    facts.add(Facts(lasts={"step": 2}, texts={"waiting": "after"}))
    assert facts == Facts(lasts={"step": 2, "version": 5}, texts={"waiting": "after", "held": "kept"})


@pytest.mark.parametrize("before", [[], [OTHERS]])
def test_as_many_environments_have_facts_of_their_own_beside_all_others_together(before: list[str]) -> None:
    names = [f"e{n}" for n in range(MOST_CHARTED_ENVIRONMENTS + 9)]
    span = HistorySpan()
    for name in [*before, *names, *names]:
        span.of(name).count("groups")
    own = names[:MOST_CHARTED_ENVIRONMENTS]
    assert {name: facts.counts["groups"] for name, facts in span.environments.items()} == {
        **dict.fromkeys(own, 2),
        OTHERS: 2 * 9 + len(before),
    }


@pytest.mark.parametrize("beyond", [-1, 0, 1, 100])
def test_the_first_to_register_have_series_of_their_own(beyond: int) -> None:
    ids = range(7, 7 + MOST_CHARTED_ENVIRONMENTS + beyond)
    assert {*with_series(ids)} == {*ids[:MOST_CHARTED_ENVIRONMENTS]}


def test_a_tally_counts_many_values() -> None:
    tally = Tally()
    for n in range(5000):
        tally.note("math", {}, {"reward": [n % 2]})
    assert tally.close().environments["math"].sketches["reward"].quantiles([0, 1]) == [0, 1]


def test_ten_thousand_environments_take_bounded_room() -> None:
    spans = [
        HistorySpan(environments={f"e{first + n}": Facts({"groups": 1}) for n in range(200)})
        for first in (0, 100, 5000)
    ]
    tally = Tally()
    for n in range(10_000):
        tally.note(f"t{n}", {"groups": 1}, {"reward": [n]})
    total = added([*spans, tally.close()])
    assert len(total.environments) == MOST_CHARTED_ENVIRONMENTS + 1
    assert sum(facts.counts["groups"] for facts in total.environments.values()) == 600 + 10_000
    assert total.environments[OTHERS].counts["groups"] > 9_000


def test_an_environment_where_nothing_came_or_went_is_the_least_busy() -> None:
    facts = {"a": Facts(), "b": Facts({"sequences_out": 1}), "c": Facts({"sequences_in": 1, "sequences_out": 1})}
    assert busiest([HistorySpan(environments=facts)]) == ["c", "b", "a"]


sequences = st.dictionaries(st.sampled_from([OTHERS, *"abcde"]), st.tuples(st.integers(0, 3), st.integers(0, 3)))


@given(st.lists(sequences, max_size=4), st.integers(0, 6))
def test_the_busiest_have_facts_of_their_own_and_nothing_is_lost(
    parts: list[dict[str, tuple[int, int]]], most: int
) -> None:
    spans = [
        HistorySpan(
            Facts({"batches": 1}),
            {name: Facts({"sequences_in": came, "sequences_out": went}) for name, (came, went) in part.items()},
        )
        for part in parts
    ]
    names = {name for part in parts for name in part} - {OTHERS}
    totals = {name: sum(sum(part.get(name, ())) for part in parts) for name in names}
    own = busiest(spans, most)
    assert len(own) == min(most, len(names))
    for name in names - set(own):
        assert all((totals[one], name) > (totals[name], one) for one in own), "it has less, or a later name"
    for span, part in zip(spans, parts, strict=True):
        found = span.limited_to(own)
        left = [numbers for name, numbers in part.items() if name not in own]
        assert found.run == span.run
        assert found.environments.keys() == (part.keys() & set(own)) | ({OTHERS} if left else set())
        assert all(found.environments[name] == span.environments[name] for name in part.keys() & set(own))
        if left:
            counts = found.environments[OTHERS].counts
            assert counts.get("sequences_in", 0) == sum(came for came, _ in left)
            assert counts.get("sequences_out", 0) == sum(went for _, went in left)
        assert span.environments.keys() == part.keys(), "the span itself stays"
