"""When a request is sent again, and after how long."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lachesis._transport.logs import LogSchedule, RateLimitedLog
from lachesis._transport.retry import PASSING, Backoff, passes
from lachesis.errors import (
    BY_CODE,
    AnnotationsFull,
    LachesisError,
    LeaseLost,
    ServiceError,
    Unauthorized,
    Unreachable,
    UntrustedCertificate,
)
from tests.properties import examples

LOST = Unreachable("the connection was reset")


class Jitterless(Random):
    """Draws 0."""

    def random(self) -> float:
        return 0.0


def said(status: int, retry_after_s: float | None = None) -> ServiceError:
    error = ServiceError("no")
    error.status, error.retry_after_s = status, retry_after_s
    return error


@pytest.mark.parametrize("status", range(400, 600))
def test_only_what_may_be_otherwise_in_a_moment_is_sent_again(status: int) -> None:
    repeated = Backoff(60).pause_s(said(status), 1, 0, Random(1)) is not None
    assert repeated == (status in {408, 429, 502, 503, 504, 507})


@pytest.mark.parametrize("cls", BY_CODE.values(), ids=BY_CODE)
def test_a_known_error_is_repeated_if_the_service_suggests_a_time(cls: type[ServiceError]) -> None:
    assert passes(cls("no")) == (cls.retry_after_s is not None)


@pytest.mark.parametrize("retry_after_s", [1e30, math.inf])
def test_in_the_background_no_pause_is_longer_than_an_hour(retry_after_s: float) -> None:
    """A gateway may name any time, and groups wait in an outbox."""
    assert Backoff(math.inf).pause_s(said(503, retry_after_s), 1, 0, Jitterless()) == 3600
    assert Backoff(60).pause_s(said(503, retry_after_s), 1, 0, Jitterless()) is None


@pytest.mark.parametrize("cls", BY_CODE.values(), ids=BY_CODE)
def test_in_the_background_a_refused_token_is_waited_out_and_no_other_refusal(cls: type[ServiceError]) -> None:
    repeated = Backoff(math.inf).pause_s(cls("no"), 1, 0, Random(1)) is not None
    assert repeated == (passes(cls("no")) or cls is Unauthorized)


@pytest.mark.parametrize("status", [307, 400, 401, 403, 404, 413, 500])
def test_in_the_background_a_gateway_is_waited_out_unless_it_finds_the_request_too_large(status: int) -> None:
    error = said(status)
    error.code = f"http_{status}"
    repeated = [Backoff(budget_s).pause_s(error, 1, 0, Random(1)) is not None for budget_s in (60, math.inf)]
    assert repeated == [False, status != 413]


def test_only_in_the_background_an_untrusted_certificate_is_waited_out() -> None:
    error = UntrustedCertificate("its certificate has expired")
    repeated = [Backoff(budget_s).pause_s(error, 1, 0, Random(1)) is not None for budget_s in (60, math.inf)]
    assert repeated == [False, True]


def test_a_refusal_of_a_newer_service_is_not_waited_out() -> None:
    error = said(422)
    error.code = "of_the_next_version"
    assert Backoff(math.inf).pause_s(error, 1, 0, Random(1)) is None


def test_annotations_without_room_are_not_sent_again_although_groups_are() -> None:
    assert AnnotationsFull.status in PASSING
    assert not passes(AnnotationsFull("the annotations take 64 MB"))


def test_errors_that_come_from_no_service_are_not_repeated() -> None:
    assert Backoff(60).pause_s(LachesisError("a mistake"), 1, 0, Random(1)) is None


@given(attempt=st.integers(1, 10_000), elapsed_s=st.floats(0, 200), seed=st.integers())
@examples(300)
def test_a_pause_is_within_its_bounds_and_ends_within_the_budget(attempt: int, elapsed_s: float, seed: int) -> None:
    backoff = Backoff(budget_s=100, base_s=0.5, cap_s=4)
    pause_s = backoff.pause_s(LOST, attempt, elapsed_s, Random(seed))
    if pause_s is None:
        assert elapsed_s >= 100
    else:
        assert 0 <= pause_s <= min(4, 0.5 * 2.0 ** min(attempt, 99) / 2)
        assert elapsed_s + pause_s <= 100 + 1e-9


@pytest.mark.parametrize(("attempt", "longest_s"), [(1, 1), (2, 2), (3, 4), (4, 5)])
@pytest.mark.parametrize("error", [LOST, said(503)], ids=["lost", "said"])
def test_pauses_are_spread_over_their_whole_range(error: LachesisError, attempt: int, longest_s: float) -> None:
    """Full jitter: clients that lost the same server at the same moment come back at different ones."""
    random = Random(7)
    parts = [(Backoff(60, base_s=1).pause_s(error, attempt, 0, random) or 0.0) / longest_s for _ in range(1000)]
    assert min(parts) < 0.02
    assert 0.98 < max(parts) <= 1
    assert 0.45 < sum(parts) / len(parts) < 0.55


def test_the_service_is_asked_no_earlier_than_it_said() -> None:
    full = said(429, 7)
    pauses = [Backoff(60).pause_s(full, 1, 0, Random(seed)) or 0.0 for seed in range(100)]
    assert 7 <= min(pauses) < max(pauses) <= 7.1


def test_without_a_budget_a_request_is_sent_once() -> None:
    assert all(Backoff(0).pause_s(LOST, 1, 0, random) is None for random in (Random(1), Jitterless()))


def test_the_statuses_that_pass_are_those_of_codes_which_pass() -> None:
    assert {408, 429, 503, 507} < PASSING
    assert BY_CODE["lease_lost"] is LeaseLost


def test_a_notice_comes_at_once_and_then_seldom() -> None:
    notice = RateLimitedLog(60)
    assert [now_s for now_s in range(100, 300) if notice.due(now_s)] == [100, 160, 220, 280]


def test_notices_of_a_wait_grow_rarer_and_start_again_after_quiet() -> None:
    rhythm = LogSchedule(first_s=10, longest_s=100)
    assert rhythm.due_s < 0
    said, now_s = [], 5.0
    for _ in range(6):
        rhythm.logged(now_s)
        said.append(now_s)
        now_s = rhythm.due_s
    assert said == [5, 15, 45, 135, 235, 335]
    rhythm.logged(now_s + 99)
    assert rhythm.due_s == now_s + 99 + 100, "not quiet for long enough"
    rhythm.logged(rhythm.due_s + 101)
    assert rhythm.due_s == now_s + 99 + 100 + 101 + 10
