"""How fast batches follow each other, against a count of each millisecond."""

import random

import pytest

from app.core.batches.pace import MOST_BATCHES, BatchPace, BatchSpan, held_ms, pace


def test_before_the_second_batch_there_is_no_pace() -> None:
    assert pace([], 0, 5_000, blocked=True) == BatchPace(None, None, 5.0)
    assert pace([], 2_000, 5_000, blocked=True) == BatchPace(None, None, 3.0)
    assert pace([BatchSpan(1_000, 4_000)], 0, 5_000, blocked=True) == BatchPace(None, None, 1.0)


def test_a_pause_between_batches_does_not_change_the_usual_interval() -> None:
    formed = [0, 4_000, 8_000, 100_000, 104_000]
    found = pace([BatchSpan(at, at + 1_000) for at in formed], 0, 105_000, blocked=False)
    assert found.batch_interval_s == 4.0
    assert found.blocked_s is None


def test_an_old_batch_that_a_trainer_has_counts_for_its_time_alone() -> None:
    formed = [*range(100_000, 108_001, 1_000), *range(110_000, 122_001, 2_000)]
    assert len(formed) == MOST_BATCHES
    latest = [BatchSpan(at, at + 500) for at in formed]
    assert pace(latest, 0, 123_000, blocked=False).idle_share > 0
    assert pace([*latest, BatchSpan(0, 123_000)], 0, 123_000, blocked=False) == BatchPace(1.0, 0.0, None)


def test_the_trainer_is_idle_while_no_batch_is_out() -> None:
    spans = [BatchSpan(0, 3_000), BatchSpan(4_000, 7_000), BatchSpan(6_000, 9_000)]
    assert pace(spans, 0, 10_000, blocked=True) == BatchPace(3.0, pytest.approx(0.2), 1.0)


def test_the_idle_share_is_that_of_counting() -> None:
    seeded = random.Random(7)
    for _ in range(200):
        formed = [seeded.randrange(100) for _ in range(seeded.randrange(2, 8))]
        spans = [BatchSpan(at, at + seeded.randrange(30)) for at in formed]
        clock_ms = max(one.ended_ms for one in spans) + seeded.randrange(1, 20)
        times = range(min(formed), clock_ms)
        idle = [not any(one.formed_ms <= time < one.ended_ms for one in spans) for time in times]
        seeded.shuffle(spans)
        assert pace(spans, 0, clock_ms, blocked=False).idle_share == pytest.approx(sum(idle) / len(times))
        begin_ms, end_ms = sorted((seeded.randrange(120), seeded.randrange(120)))
        held = sum(any(one.formed_ms <= time < one.ended_ms for one in spans) for time in range(begin_ms, end_ms))
        assert held_ms(spans, begin_ms, end_ms) == held
