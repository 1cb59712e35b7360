"""Patterns of runs, held against `fnmatch`, which knows `*` too."""

import re
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.access.identity import OPEN, Identity, matches

PATTERNS = st.text("ab*.", min_size=1, max_size=12)
NAMES = st.text("ab.", max_size=12)


@given(PATTERNS, NAMES)
def test_a_star_stands_for_any_characters(pattern: str, name: str) -> None:
    assert matches(pattern, name) == bool(re.match(translate(pattern), name))


@pytest.mark.parametrize(("pattern", "name"), [("a?", "ab"), ("[ab]", "a"), ("a*", "A1"), ("math", "math-1")])
def test_other_characters_stand_for_themselves(pattern: str, name: str) -> None:
    assert not matches(pattern, name)


def test_a_pattern_of_many_stars_costs_no_time() -> None:
    assert not matches("a*" * 32 + "c", "a" * 64 + "b")
    assert matches("a*" * 32, "a" * 64)


def test_an_identity_has_the_runs_that_any_of_its_patterns_matches() -> None:
    identity = Identity("x", "token", "trainer", ("math-*", "code"))
    assert identity.own(["code", "code-2", "math-1", "physics"]) == ["code", "math-1"]
    assert not identity.has_all_runs
    assert OPEN.has_run("whatever")
