"""Shares of environments against a count of every group."""

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.history.series import MOST_CHARTED_ENVIRONMENTS, OTHERS, Facts, HistorySpan
from app.core.history.shares import Shares, shares
from lachesis.wire.history import HistoryCount

names = st.sampled_from(["gsm8k", "code", OTHERS, "math"])
groups = st.tuples(names, st.sampled_from(["in", "out"]), st.integers(1, 4), st.integers(0, 9))
"""Groups: environment, way, sequences, tokens."""


def span_of(happened: list[tuple[str, str, int, int]]) -> HistorySpan:
    span = HistorySpan()
    for name, way, sequences, tokens in happened:
        for what, by in (("groups", 1), ("sequences", sequences), ("tokens", tokens)):
            span.of(name).count(f"{what}_{way}", by)
    return span


@given(st.lists(st.lists(groups, max_size=6), max_size=4), st.sampled_from(get_args(HistoryCount)))
def test_shares_are_those_of_all_groups(parts: list[list[tuple[str, str, int, int]]], counted: HistoryCount) -> None:
    found = shares(map(span_of, parts), counted)
    counts = {"in": Counter[str](), "out": Counter[str]()}
    for name, way, sequences, tokens in (group for part in parts for group in part):
        counts[way][name] += {"groups": 1, "sequences": sequences, "tokens": tokens}[counted]
    came, went = counts["in"], counts["out"]
    assert (found.generated, found.trained) == (came.total(), went.total())
    assert {one.name: (one.generated, one.trained) for one in found.environments} == {
        name: (came[name], went[name]) for name in came | went if came[name] or went[name]
    }
    for one in found.environments:
        assert one.generated_share == (came[one.name] / came.total() if came.total() else None)
        assert one.trained_share == (went[one.name] / went.total() if went.total() else None)
        is_known = bool(came.total() and went.total())
        assert ((one.difference is not None), (one.shift is not None)) == (is_known, is_known)
    distances = [abs(one.difference or 0) for one in found.environments]
    assert distances == sorted(distances, reverse=True)
    assert sum(one.difference or 0 for one in found.environments) == pytest.approx(0)


def said(**sequences: tuple[float, float]) -> Shares:
    """The shares of environments with so many sequences in and out."""
    facts = {
        name.replace("others", OTHERS): Facts({"sequences_in": came, "sequences_out": went})
        for name, (came, went) in sequences.items()
    }
    return shares([HistorySpan(environments=facts)], "sequences")


def test_shares_are_said_in_words() -> None:
    found = said(gsm8k=(41, 52), code=(49, 38), others=(10, 10))
    assert [one.shift for one in found.environments] == [
        '"code" is 49 % of what was generated and 38 % of what was trained on.',
        '"gsm8k" is 41 % of what was generated and 52 % of what was trained on.',
        "All other groups together are 10 % of what was generated and of what was trained on.",
    ]
    assert found.shift == found.environments[0].shift
    few = said(gsm8k=(9991, 9_940), code=(9, 60))
    assert few.environments[0].shift == '"code" is 0.09 % of what was generated and 0.6 % of what was trained on.'
    assert few.shift == "Every environment has the same share of what was generated and of what was trained on, to 1 %."
    (large, _) = said(gsm8k=(1, 0), code=(99_999, 5)).environments
    assert large.shift == '"code" is 100 % of what was generated and of what was trained on.'
    tiny = said(gsm8k=(1, 1), code=(99_999, 1)).environments[1]
    assert tiny.shift == '"gsm8k" is less than 0.01 % of what was generated and 50 % of what was trained on.'
    unknown = said(gsm8k=(5, 0), code=(2, 0))
    assert (unknown.shift, [one.name for one in unknown.environments]) == (None, ["code", "gsm8k"])
    assert shares([], "tokens") == Shares(0, 0, None, [])


def test_many_environments_are_bounded_and_nothing_is_lost() -> None:
    facts = [(f"e{n:03}", Facts({"sequences_in": 1, "sequences_out": n})) for n in range(400)]
    spans = [HistorySpan(environments=dict(facts[:200])), HistorySpan(environments=dict(facts[200:]))]
    found = shares(spans, "sequences")
    assert len(found.environments) == MOST_CHARTED_ENVIRONMENTS + 1
    assert sum(one.generated for one in found.environments) == found.generated == 400
    assert sum(one.trained for one in found.environments) == found.trained == sum(range(400))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("math is 50 % of the groups. x", '"math is 50 % of the groups. x"'),
        ('a" is 1 %. "b', "\"a' is 1 %. 'b\""),
        ("n" * 48, '"' + "n" * 48 + '"'),
        ("n" * 49, '"' + "n" * 47 + '…"'),
    ],
)
def test_a_name_cannot_go_on_with_the_sentence(name: str, shown: str) -> None:
    found = said(**{name: (1, 1)}).environments[0]
    assert found.name == name
    assert found.shift == f"{shown} is 100 % of what was generated and of what was trained on."
