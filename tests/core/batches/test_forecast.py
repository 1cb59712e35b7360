"""When a batch should form."""

import pytest

from app.core.batches.diagnosis import explain
from app.core.batches.forecast import WINDOW_MS, expected_s, rates
from app.core.model import Bounds, Lane, NotReady
from lachesis.wire.blockers import Blocker


def short(missing: int, **by_environment: int) -> NotReady:
    own = {int(key.removeprefix("env")): count for key, count in by_environment.items()}
    return NotReady(Blocker.MINIMUM_SHORT if own else Blocker.TOO_FEW_SEQUENCES, "", missing, own)


def test_a_rate_is_what_came_within_the_window() -> None:
    samples = [(0, {0: 0}), (10_000, {0: 100}), (10_000 + WINDOW_MS, {0: 160, 1: 30})]
    assert rates(samples) == {0: 1.0, 1: 0.5}


def test_one_look_gives_no_rate() -> None:
    assert rates([]) == {}
    assert rates([(5, {0: 3})]) == {}


def test_a_run_that_was_reset_has_no_negative_rate() -> None:
    assert rates([(0, {0: 100}), (1000, {0: 5})]) == {0: 0.0}


@pytest.mark.parametrize(
    ("not_ready", "arriving", "expected"),
    [
        (short(30), {0: 2.0, 1: 1.0}, 10.0),
        (short(30), {}, None),
        (short(0, env0=8), {0: 2.0, 1: 100.0}, 4.0),
        (short(100, env0=8), {0: 2.0, 1: 8.0}, 10.0),
        (short(0, env0=8, env1=1), {0: 2.0}, None),
        (NotReady(Blocker.NO_EXACT_FIT, ""), {0: 2.0}, None),
        (NotReady(Blocker.MINIMUMS_CONFLICT, ""), {0: 2.0}, None),
    ],
)
def test_the_slowest_of_what_is_missing_decides(
    not_ready: NotReady, arriving: dict[int, float], expected: float | None
) -> None:
    assert expected_s(not_ready, arriving) == expected


def test_environments_at_their_maximum_bring_nothing_more() -> None:
    bounds = {0: Bounds(0, 4), 1: Bounds(0)}
    waits = explain(8, [Lane(0, 2, 10, ())], bounds, {0: {2}, 1: {2}})
    assert (waits.missing_sequences, waits.at_maximum) == (4, {0})
    assert expected_s(waits, {0: 100.0}) is None
    assert expected_s(waits, {0: 100.0, 1: 1.0}) == 4.0


def test_environments_that_are_gone_send_nothing_whatever_they_sent() -> None:
    arriving = {0: 2.0, 1: 1.0}
    assert expected_s(short(30), arriving, {1}) == 15.0
    assert expected_s(short(30), arriving, {0, 1}) is None
    assert expected_s(short(0, env0=8), arriving, {0}) is None


def test_an_environment_that_fell_silent_is_not_expected_at_once() -> None:
    """It may have died: its rate over the last minute says nothing yet."""
    arriving = {0: 4.0, 1: 4.0}
    assert expected_s(short(0, env0=4), arriving, (), {0: 0.5, 1: 45.0}) == 1.0
    assert expected_s(short(0, env0=4), arriving, (), {0: 45.0, 1: 0.5}) == 45.0
    assert expected_s(short(8), arriving, (), {0: 45.0, 1: 0.5}) == 1.0, "the other one sends what is missing"
    assert expected_s(short(8), arriving, (), {0: 45.0, 1: 30.0}) == 30.0
