"""The file of rules: what it means, and the messages about wrong ones."""

import pytest

from app.core.access.claim_rules import InvalidRules, parse_rules
from app.core.access.claims import ClaimRule
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings

RULES = """\
[[rule]]
claim = "groups"
value = "rl-operators"
role = "operator"

[[rule]]   # a comment
claim = "sub"
value = "system:serviceaccount:rl-*:env"
role = "environment"
runs = [
  "{/kubernetes.io/namespace}-*",
]
environment = "gsm8k"

[[rule]]
claim = "sub"
value = "*"
role = "viewer"
runs = ["demo"]
contents = true
"""


def test_rules_keep_their_order() -> None:
    assert parse_rules(RULES) == (
        ClaimRule("groups", "rl-operators", "operator", ("*",)),
        ClaimRule(
            "sub", "system:serviceaccount:rl-*:env", "environment", ("{/kubernetes.io/namespace}-*",), "gsm8k", False
        ),
        ClaimRule("sub", "*", "viewer", ("demo",), None, True),
    )


def test_a_rule_has_the_limits_of_tokens_and_none_by_default() -> None:
    rules = parse_rules(RULES + "max_bytes_per_s = 5\nmax_queued_groups = 7\n")
    assert (rules[2].limits, rules[2].queue_limits) == (
        RateLimitSettings(max_bytes_per_s=5),
        QueueLimitSettings(max_queued_groups=7),
    )
    assert (rules[1].limits, rules[1].queue_limits) == (None, None)
    for name in (*RateLimitSettings.model_fields, *QueueLimitSettings.model_fields):
        with pytest.raises(InvalidRules, match=f"a rule has .*{name}"):
            parse_rules(RULES + "other = 5\n")


@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_values_that_are_nested_too_deeply_are_refused(pair: str) -> None:
    begin, end = ("[", "]") if pair == "[]" else ("{a=", "}")
    with pytest.raises(InvalidRules, match="a value is nested too deeply"):
        parse_rules(f"[[rule]]\nclaim = {begin * 4000}1{end * 4000}\n")


def test_values_nested_as_deeply_as_can_just_be_read_are_refused_too() -> None:
    """The line of what is wrong is found by reading again."""
    for depth in range(100, 1000):
        with pytest.raises(InvalidRules):
            parse_rules(f"[[rule]]\nclaim = {'[' * depth}{']' * depth}\nvalue = 'a'\nrole = 'trainer'\n")


def test_the_number_of_rules_has_a_limit() -> None:
    rule = "[[rule]]\nclaim = 'a'\nvalue = 'b'\nrole = 'operator'\n"
    assert len(parse_rules(100 * rule)) == 100
    with pytest.raises(InvalidRules, match="1 to 100"):
        parse_rules(101 * rule)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('role = "operator"', 'rol = "operator"', "line 4: rule 1: rol: unknown field; a rule has claim, value"),
        ('role = "operator"', 'role = "root"', "line 4: rule 1: role: Input should be 'environment', 'trainer'"),
        ('role = "operator"\n', "", "line 1: rule 1: role: Field required"),
        ('"groups"', "3", "line 2: rule 1: claim: Input should be a valid string"),
        ('"groups"', '""', "line 2: rule 1: claim: String should have at least 1 character"),
        ('-*",', '-/*",', "line 12: rule 2: runs[0]: a run has letters, digits"),
        ('-*",', '-{x}",', "line 12: rule 2: runs[0]: a run has letters, digits"),
        ('"gsm8k"', '"{a}{b}"', "line 13: rule 2: environment: more than one {claim}"),
        ('role = "environment"', 'role = "trainer"', "line 6: rule 2: role trainer takes no environment"),
        ('runs = ["demo"]\n', "", "line 15: rule 3: role viewer needs runs"),
        ("= true", "= true\nmax_requests_per_s = 0", "line 21: rule 3: max_requests_per_s: Input should be greater"),
        ("= true", "= true\nmax_bytes_per_s = nan", "line 21: rule 3: max_bytes_per_s: Input should be a finite"),
        (
            "= true",
            "= true\nmax_groups_per_s = true",
            "line 21: rule 3: max_groups_per_s: should be a number, not true",
        ),
        (
            "= true",
            "= true\nmax_queued_groups = 1.5",
            "line 21: rule 3: max_queued_groups: Input should be a valid int",
        ),
        ("= true", f"= true\nmax_queued_bytes = {2**53}", "line 21: rule 3: max_queued_bytes: Input should be less"),
        ("= true", "= true\nmax_groups = 1", "line 21: rule 3: max_groups: unknown field; a rule has claim, value"),
        ('"gsm8k"', '"gsm8k', "(at line 13, column"),
        ("[[rule]]   #", "[rule]   #", "(at line 6, column"),
        ("[[rule]]\nclaim", "[rules]\nx = 1\n[[rule]]\nclaim", "line 1: rules: the file has only [[rule]] tables"),
        (RULES, "", "the file needs 1 to 100 [[rule]] tables"),
        (RULES, "rule = 1", "the file needs 1 to 100 [[rule]] tables"),
        (RULES, "[rule]\nclaim = 'a'", "the file needs 1 to 100 [[rule]] tables"),
        (RULES, "rule = [1]", "line 1: rule 1: it is not a table: write [[rule]]"),
        (RULES, "#" * 16385, "the file is over 16384 bytes"),
    ],
)
def test_a_wrong_file_is_refused_with_line_and_field(old: str, new: str, message: str) -> None:
    assert old in RULES
    with pytest.raises(InvalidRules) as refused:
        parse_rules(RULES.replace(old, new, 1))
    assert message in str(refused.value)
