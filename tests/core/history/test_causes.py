"""What a span of a timeline says."""

from app.core.history.causes import HELD, blocked_sentence, reason_of
from lachesis.wire.history import CAUSES


def test_the_longest_cause_comes_first() -> None:
    seconds = {"waiting_for_data": 2.0, "trainer_holds_batch": 7.4, "paused": 0.0}
    said = "A trainer held a batch for 7 s. Too few trainable sequences were queued for 2 s. Last reason: 3 are there."
    assert blocked_sentence(seconds, {"waiting_for_data": "3 are there", "paused": "not now"}) == said


def test_long_and_short_times_have_fitting_units() -> None:
    seconds = {"starvation": 3600.0, "no_exact_fit": 0.2}
    said = "Nothing trainable arrived for 60 min. "
    said += "Sizes of groups did not sum to a batch, or could not be divided for less than 1 s."
    assert blocked_sentence(seconds, {}) == said


def test_no_cause_blocked_nothing() -> None:
    assert blocked_sentence({}, {}) == "Nothing blocked it."


def test_each_cause_has_a_sentence() -> None:
    assert len({blocked_sentence({cause: 1.0}, {}) for cause in CAUSES}) == len(CAUSES)


def test_a_reason_is_kept_where_the_cause_does_not_say_it_all() -> None:
    kept = {cause: reason_of(cause, "what explain says", "what starves") for cause in [None, *CAUSES] if cause != HELD}
    assert {cause: reason for cause, reason in kept.items() if reason is not None} == {
        "waiting_for_data": "what explain says",
        "minimum_short": "what explain says",
        "no_exact_fit": "what explain says",
        "starvation": "what starves",
    }
    assert reason_of("waiting_for_data", None, None) is None
    assert reason_of("waiting_for_data", "x" * 300, None) == "x" * 300
    assert reason_of("waiting_for_data", "x" * 301, None) == "x" * 299 + "…"
