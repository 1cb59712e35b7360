"""Patterns of runs, held against `fnmatch`, which knows `*` too."""

import re
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.access.identity import OPEN, Identity, IdentityKind, matches
from lachesis.wire.limits import QueueLimitSettings

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


def test_senders_of_one_name_share_no_limits() -> None:
    """An issuer may choose any name, also that of a token, a very long one, or one with separators of keys."""
    limits = QueueLimitSettings(max_queued_groups=1)

    def sender(kind: IdentityKind, name: str, token_id: str | None = None) -> Identity:
        return Identity(name, kind, "environment", ("*",), token_id=token_id, environment="math", queue_limits=limits)

    senders = [sender("token", "ada", "0" * 12), sender("token", "ada", "1" * 12)]
    senders += [sender("jwt", name) for name in ("ada", "0" * 12, "token:" + "0" * 12, "x y:" * 128)]
    senders += [sender("certificate", "ada")]
    owners, queues = [one.owner for one in senders], [one.queue for one in senders]
    assert owners[:2] == ["token:000000000000", "token:111111111111"]
    assert all(re.fullmatch(r"(jwt|certificate):[0-9a-f]{32}", owner) for owner in owners[2:])
    assert len(set(owners)) == len({queue.account_id for queue in queues if queue}) == len(senders)
    assert [queue.name for queue in queues[:3] if queue] == ["token 000000000000", "token 111111111111", "jwt 'ada'"]
    assert queues[0] is not None
    assert (queues[0].account_id, queues[0].environment, queues[0].limits) == ("0" * 12, "math", limits)
    assert len(senders[5].account_name) < 250
    assert Identity("ada", "jwt", "environment", ("*",)).queue is None
