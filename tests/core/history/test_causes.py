"""What a span of a timeline says."""

from app.core.history.causes import Cause, blocked_sentence, reason_of


def test_the_longest_cause_comes_first() -> None:
    seconds = {Cause.WAITING_FOR_DATA: 2.0, Cause.TRAINER_HOLDS_BATCH: 7.4, Cause.PAUSED: 0.0}
    said = "A trainer held a batch for 7 s. Too few sequences were queued for 2 s. Last reason: 3 are there."
    assert blocked_sentence(seconds, {Cause.WAITING_FOR_DATA: "3 are there", Cause.PAUSED: "not now"}) == said


def test_long_and_short_times_have_fitting_units() -> None:
    seconds = {Cause.STARVATION: 3600.0, Cause.NO_EXACT_FIT: 0.2}
    said = "Nothing trainable arrived for 60 min. "
    said += "Sizes of groups did not sum to a batch, or could not be divided for less than 1 s."
    assert blocked_sentence(seconds, {}) == said


def test_no_cause_blocked_nothing() -> None:
    assert blocked_sentence({}, {}) == "Nothing blocked it."


def test_each_cause_has_a_sentence() -> None:
    assert len({blocked_sentence({cause: 1.0}, {}) for cause in Cause}) == len(Cause)


def test_a_reason_is_kept_where_the_cause_does_not_say_it_all() -> None:
    kept = {cause: reason_of(cause, "what explain says", "what starves") for cause in [None, *Cause]}
    assert {cause: reason for cause, reason in kept.items() if reason is not None} == {
        Cause.WAITING_FOR_DATA: "what explain says",
        Cause.MINIMUM_SHORT: "what explain says",
        Cause.NO_EXACT_FIT: "what explain says",
        Cause.STARVATION: "what starves",
    }
    assert reason_of(Cause.WAITING_FOR_DATA, None, None) is None
    assert reason_of(Cause.WAITING_FOR_DATA, "x" * 300, None) == "x" * 300
    assert reason_of(Cause.WAITING_FOR_DATA, "x" * 301, None) == "x" * 299 + "…"
