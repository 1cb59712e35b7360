"""Every token is counted once, under what happened to it."""

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.runs.ledger import WASTE, TokenLedger, WasteKind, ledger_of, ledger_of_run
from lachesis.wire.states import DROP_REASONS, FILTERS
from lachesis.wire.status import Ledger

OUTCOMES = ("trained", "leased", "queued", *DROP_REASONS)
groups = st.lists(st.tuples(st.sampled_from(OUTCOMES), st.none() | st.integers(0, 2), st.integers(0, 2**40)))
"""The outcome of each group, its environment and its tokens."""


def stored(every: list[tuple[str, int | None, int]]) -> dict[tuple[str, int | None], int]:
    """Count tokens as the scripts do: those that wait have no count."""
    counts: dict[tuple[str, int | None], int] = {}
    for outcome, environment, tokens in every:
        for state in ("generated", *([] if outcome == "queued" else [outcome])):
            counts[state, environment] = counts.get((state, environment), 0) + tokens
    return counts


def tokens_of(every: list[tuple[str, int | None, int]], *outcomes: str) -> int:
    return sum(tokens for outcome, _, tokens in every if outcome in outcomes)


@given(groups)
def test_a_ledger_names_what_happened_to_each_token(every: list[tuple[str, int | None, int]]) -> None:
    ledger = ledger_of_run(stored(every))
    assert ledger == TokenLedger(
        generated=tokens_of(every, *OUTCOMES),
        trained=tokens_of(every, "trained"),
        queued=tokens_of(every, "queued"),
        leased=tokens_of(every, "leased"),
        stale=tokens_of(every, "stale"),
        filtered=tokens_of(every, "zero_variance", "reward_range", "pass_rate"),
        dropped=tokens_of(every, "too_long", "future_version", "quarantined", "payload_lost", "corrupt"),
        surplus=tokens_of(every, "deleted", "expired"),
    )
    assert ledger.generated == sum(ledger.by_state().values())


@given(groups)
def test_the_ledger_of_a_run_is_the_sum_of_those_of_its_environments(every: list[tuple[str, int | None, int]]) -> None:
    counts, totals = stored(every), dict.fromkeys(["generated", *TokenLedger().by_state()], 0)
    for environment in {environment for _, environment in counts}:
        own = ledger_of({state: tokens for (state, owner), tokens in counts.items() if owner == environment})
        for name in totals:
            totals[name] += getattr(own, name)
    assert ledger_of_run(counts) == TokenLedger(**totals)


def test_each_reason_for_a_drop_is_a_kind_of_waste() -> None:
    assert WASTE.keys() == set(DROP_REASONS)


@pytest.mark.parametrize("kind", get_args(WasteKind))
def test_the_status_describes_waste_by_its_reasons(kind: WasteKind) -> None:
    described = str(Ledger.model_fields[f"{kind}_tokens"].description)
    reasons = {reason for reason, own in WASTE.items() if own == kind and reason not in FILTERS}
    assert {*re.findall(r"`(\w+)`", described)} & {*DROP_REASONS} == reasons


def test_costs_follow_from_tokens() -> None:
    ledger = ledger_of({"generated": 3_000_000, "trained": 1_000_000, "stale": 500_000})
    cost = ledger.cost(2.0)
    assert (cost["generated"], cost["trained"], cost["stale"], cost["queued"], cost["surplus"]) == (6, 2, 1, 3, 0)
    assert ledger.cost(0.0) == dict.fromkeys(cost, 0)
