"""The rules for claims, held against PyJWT and against a slow reading of the rules."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.access.claims import ClaimRule, Grant, claims_problem, grant_of, texts_of
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings

ISSUER, AUDIENCE = "https://issuer.example.org", "lachesis"
SECRET = "s" * 64
VALID = {"iss": ISSUER, "aud": AUDIENCE, "sub": "x", "exp": 2000}

# Times are so far away that it does not matter when the test runs.
TIMES = st.sampled_from([-100_000, -10_000, 10_000, 100_000, 10_000.5, "soon"])
CLAIMS = st.fixed_dictionaries(
    {},
    optional={
        "iss": st.sampled_from([ISSUER, ISSUER + "/", "", 7]),
        "aud": st.sampled_from([AUDIENCE, "other", [AUDIENCE], ["other", AUDIENCE], ["other"], []]),
        "sub": st.sampled_from(["worker", 7]),
        "exp": TIMES,
        "nbf": TIMES,
        "iat": TIMES,
    },
)


@given(CLAIMS)
def test_claims_are_accepted_as_pyjwt_does(offsets: dict[str, Any]) -> None:
    now_s = int(datetime.now(UTC).timestamp())
    claims = {
        name: now_s + value if name in ("exp", "nbf", "iat") and not isinstance(value, str) else value
        for name, value in offsets.items()
    }
    token = jwt.PyJWS().encode(json.dumps(claims).encode(), SECRET, "HS256")
    try:
        jwt.decode(
            token, SECRET, ["HS256"], {"require": ["exp", "sub", "iss"]}, audience=AUDIENCE, issuer=ISSUER, leeway=30
        )
        accepted = True
    except jwt.PyJWTError:
        accepted = False
    assert (claims_problem(claims, ISSUER, AUDIENCE, now_s) is None) == accepted


@pytest.mark.parametrize(
    ("changed", "now_s", "problem"),
    [
        ({}, 2029, None),
        ({}, 2030, "the token has expired"),
        ({"nbf": 1000}, 970, None),
        ({"nbf": 1000}, 969, "the token is not valid yet"),
        ({"iat": 1000}, 969, "the token is not valid yet"),
        ({"sub": "x" * 512}, 0, None),
        ({"exp": 2**53 - 1}, 0, None),
        ({"exp": 2**53}, 0, "the claim exp of the token is not a time"),
        ({"exp": True}, 0, "the claim exp of the token is not a time"),
        ({"exp": float("inf")}, 0, "the claim exp of the token is not a time"),
        ({"exp": float("nan")}, 0, "the claim exp of the token is not a time"),
        ({"exp": "2000"}, 0, "the claim exp of the token is not a time"),
        ({"nbf": None}, 0, "the claim nbf of the token is not a time"),
        ({"aud": {AUDIENCE: 1}}, 0, "the token is for another audience"),
        ({"aud": f"{AUDIENCE} other"}, 0, "the token is for another audience"),
        ({"aud": f"not-{AUDIENCE}"}, 0, "the token is for another audience"),
        ({"iss": [ISSUER]}, 0, "the token is of another issuer"),
        ({"sub": ""}, 0, "the claim sub of the token is not text of 1 to 512 printable characters"),
        ({"sub": "a\nb"}, 0, "the claim sub of the token is not text of 1 to 512 printable characters"),
        ({"sub": "x" * 513}, 0, "the claim sub of the token is not text of 1 to 512 printable characters"),
    ],
)
def test_each_refusal_has_a_reason(changed: dict[str, Any], now_s: float, problem: str | None) -> None:
    assert claims_problem(VALID | changed, ISSUER, AUDIENCE, now_s) == problem


# Rules

TEXTS = st.text("ab*", max_size=3)
VALUES = st.one_of(TEXTS, st.lists(TEXTS, max_size=3), st.booleans(), st.just({"c": "a"}))
TEMPLATES = st.sampled_from(["*", "a", "a-*", "{c}", "{d}-*", "x{/e/c}"])
RULES = st.builds(
    ClaimRule,
    claim=st.sampled_from(["c", "d", "/e/c"]),
    value=st.text("ab*", min_size=1, max_size=3),
    role=st.sampled_from(["environment", "trainer"]),
    runs=st.lists(TEMPLATES, min_size=1, max_size=3).map(tuple),
    environment=st.sampled_from([None, "gsm8k", "{c}"]),
    contents=st.booleans(),
    limits=st.sampled_from([None, RateLimitSettings(max_bytes_per_s=5)]),
    queue_limits=st.sampled_from([None, QueueLimitSettings(max_queued_groups=7)]),
)


def slow(rules: list[ClaimRule], claims: dict[str, Any]) -> Grant | None:
    """The same by trying all ways to fill in values."""

    def values(name: str) -> list[str]:
        value = claims.get("e", {}).get("c") if name == "/e/c" else claims.get(name)
        listed = value if isinstance(value, list) else [value]
        spoken = {True: "true", False: "false"}
        return [spoken[one] if isinstance(one, bool) else one for one in listed if isinstance(one, (bool, str))]

    def fill(text: str, rule: ClaimRule) -> list[str]:
        names = re.findall("{(.*?)}", text)
        texts = [(name, one) for name in names for one in values(name) if one]
        allowed = [(name, one) for name, one in texts if name != rule.claim or fits(rule, one)]
        return [text.replace(f"{{{name}}}", one) for name, one in allowed] if names else [text]

    def fits(rule: ClaimRule, value: str) -> bool:
        return bool(re.fullmatch(".*".join(map(re.escape, rule.value.split("*"))), value))

    for rule in rules:
        if not any(fits(rule, one) for one in values(rule.claim)):
            continue
        given_stars = {template: template.count("*") for template in rule.runs}
        runs = [run for one in rule.runs for run in fill(one, rule) if run.count("*") == given_stars[one]]
        environments = [None] if rule.environment is None else fill(rule.environment, rule)
        if runs and len(environments) == 1:
            own = tuple(sorted(set(runs), key=runs.index))
            return Grant(rule.role, own, environments[0], rule.contents, rule.limits, rule.queue_limits)
    return None


@given(
    st.lists(RULES, max_size=4),
    st.fixed_dictionaries({}, optional={"c": VALUES, "d": VALUES, "e": st.fixed_dictionaries({"c": VALUES})}),
)
def test_the_first_rule_that_matches_decides(rules: list[ClaimRule], claims: dict[str, Any]) -> None:
    assert grant_of(rules, claims) == slow(rules, claims)


def test_a_claim_never_becomes_a_pattern() -> None:
    """Who chooses a claim would otherwise have all runs."""
    rule = ClaimRule("sub", "*", "trainer", ("{team}",))
    assert grant_of([rule], {"sub": "x", "team": "*"}) is None
    assert grant_of([rule], {"sub": "x", "team": ["*", "a", "b/c", "a\n"]}) == Grant("trainer", ("a",), None, False)


def test_only_the_values_that_match_a_rule_become_runs() -> None:
    """A member of a team and of another group would otherwise operate the runs of that group, too."""
    rule = ClaimRule("groups", "team-*", "operator", ("{groups}.*",))
    assert grant_of([rule], {"groups": ["team-a", "prod", "team-b"]}) == Grant(
        "operator", ("team-a.*", "team-b.*"), None, False
    )
    nested = ClaimRule("groups", "team-*", "operator", ("{/groups}.*",))
    assert grant_of([nested], {"groups": ["prod", "team-a"]}) == Grant("operator", ("team-a.*",), None, False)


def test_a_claim_of_a_service_account_is_found_by_its_pointer() -> None:
    claims = {"kubernetes.io": {"namespace": "rl", "a/b~c": 7}, "https://example.org/roles": ["x", True, 1.5, None]}
    assert texts_of(claims, "/kubernetes.io/namespace") == ["rl"]
    assert texts_of(claims, "/kubernetes.io/a~1b~0c") == ["7"]
    assert texts_of(claims, "https://example.org/roles") == ["x", "true"]
    for missing in ("/kubernetes.io/pod/name", "/kubernetes.io/namespace/x", "kubernetes.io", "/"):
        assert texts_of(claims, missing) == []


def test_an_environment_is_one_text() -> None:
    rule = ClaimRule("sub", "*", "environment", ("*",), "{env}")
    for value in (["a", "b"], [], "", "x" * 129):
        assert grant_of([rule], {"sub": "x", "env": value}) is None
    assert grant_of([rule], {"sub": "x", "env": "a*"}) == Grant("environment", ("*",), "a*", False)
