"""What each role may do."""

import pytest

from app.core.access.identity import Identity
from app.core.access.permissions import ROLES, AccessDecision, Permission, allowed, decide, holders, in_a_run
from lachesis.wire.access import Role


def identity(role: Role, runs: str = "math-*", **more: bool) -> Identity:
    return Identity("x", "token", role, (runs,), **more)


def test_each_permission_is_given_to_these_roles_only() -> None:
    """A new permission fails here until somebody decides who gets it."""
    assert {one: {role for role in ROLES if one in ROLES[role]} for one in Permission} == {
        Permission.OPEN: {"operator"},
        Permission.DESCRIBE: {"environment", "trainer", "viewer", "operator"},
        Permission.METRICS: {"trainer", "viewer", "operator", "metrics"},
        Permission.LIST_RUNS: {"trainer", "viewer", "operator"},
        Permission.CREATE_RUN: {"trainer", "operator"},
        Permission.PLAN_SHARDS: {"trainer", "operator"},
        Permission.TOKENS: {"operator"},
        Permission.AUDIT: {"operator"},
        Permission.READ: {"trainer", "viewer", "operator"},
        Permission.READ_CONTENTS: {"trainer", "operator"},
        Permission.READ_SETTINGS: {"environment", "trainer", "viewer", "operator"},
        Permission.PRODUCE: {"environment", "operator"},
        Permission.SAMPLE_ITEMS: {"environment", "trainer", "operator"},
        Permission.TRAIN: {"trainer", "operator"},
        Permission.SET_UP: {"trainer", "operator"},
        Permission.OPERATE: {"operator"},
    }


@pytest.mark.parametrize(
    ("permission", "said"),
    [
        (Permission.OPERATE, "role operator"),
        (Permission.READ, "role trainer, viewer or operator"),
        (Permission.READ_CONTENTS, "role trainer or operator, or credentials with contents"),
        (Permission.TOKENS, "role operator, for all runs"),
    ],
)
def test_a_refusal_can_say_who_has_the_permission(permission: Permission, said: str) -> None:
    assert holders(permission) == said


def test_a_foreign_run_does_not_exist_whatever_the_role() -> None:
    for role in ROLES:
        for permission in filter(in_a_run, Permission):
            assert decide(identity(role), permission, "code") is AccessDecision.UNKNOWN_RUN


def test_an_operator_may_do_everything_in_its_runs() -> None:
    assert {decide(identity("operator"), one, "math-1") for one in filter(in_a_run, Permission)} == {
        AccessDecision.ALLOWED
    }


def test_the_metrics_role_reads_metrics_alone() -> None:
    of_the_service = [one for one in Permission if not in_a_run(one)]
    allowed = [one for one in of_the_service if decide(identity("metrics", "*"), one, None) is AccessDecision.ALLOWED]
    assert allowed == [Permission.OPEN, Permission.METRICS]
    assert decide(identity("metrics", "*"), Permission.READ, "math-1") is AccessDecision.FORBIDDEN


@pytest.mark.parametrize(("runs", "decision"), [("*", AccessDecision.ALLOWED), ("math-*", AccessDecision.FORBIDDEN)])
def test_only_an_operator_of_all_runs_makes_tokens(runs: str, decision: AccessDecision) -> None:
    """Another one could make itself a token for the other runs."""
    assert decide(identity("operator", runs), Permission.TOKENS, None) is decision


@pytest.mark.parametrize("contents", [True, False])
def test_a_viewer_reads_contents_only_if_its_token_says_so(contents: bool) -> None:
    allowed = (
        decide(identity("viewer", contents=contents), Permission.READ_CONTENTS, "math-1") is AccessDecision.ALLOWED
    )
    assert allowed == contents


def test_what_is_allowed_is_what_is_decided_in_its_own_runs() -> None:
    for role in ROLES:
        for runs in ("*", "math-*"):
            one = identity(role, runs)
            runs_of = {each: "math-1" if in_a_run(each) else None for each in Permission}
            assert allowed(one) == [
                each for each in Permission if decide(one, each, runs_of[each]) is AccessDecision.ALLOWED
            ]
    assert Permission.OPERATE not in allowed(identity("viewer", "*"))


def test_an_environment_takes_no_batches_and_a_trainer_submits_no_groups() -> None:
    assert decide(identity("environment"), Permission.TRAIN, "math-1") is AccessDecision.FORBIDDEN
    assert decide(identity("trainer"), Permission.PRODUCE, "math-1") is AccessDecision.FORBIDDEN
