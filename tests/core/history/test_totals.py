"""What has grown between looks, against what happened in between."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from app.core.history.series import MOST_CHARTED_ENVIRONMENTS
from app.core.history.totals import RUN, increases, of_others

drops = st.dictionaries(st.sampled_from(["dropped:stale", "dropped:expired"]), st.integers(0, 5))
looks = st.tuples(st.dictionaries(st.sampled_from(["math", "code", "other"]), drops), st.none() | st.integers(0, 9))
"""What was dropped since the last look, and the replay total at this look, if there is a buffer."""


@given(st.lists(looks, max_size=5))
def test_what_has_grown_adds_up(steps: list[tuple[dict[str, dict[str, int]], int | None]]) -> None:
    """Of `other`, only the run's totals tell. Totals of a replay buffer fall, vanish and come again."""
    totals: dict[str, Counter[str]] = {name: Counter() for name in ("math", "code", "other", RUN)}
    before: dict[str, dict[str, float]] = {}
    replay_before = 0
    for step, replay in steps:
        for name, more in step.items():
            totals[name].update(more)
            totals[RUN].update(more)
        now: dict[str, dict[str, float]] = {name: dict(found) for name, found in totals.items() if name != "other"}
        now[RUN] |= {} if replay is None else {"replay_samples": replay}
        grown = increases(before, now)
        expected = {name: {reason: by for reason, by in more.items() if by} for name, more in step.items()}
        assert {name: found for name, found in grown.items() if found and name != RUN} == {
            name: found for name, found in expected.items() if found and name != "other"
        }
        assert grown[RUN].pop("replay_samples", 0) == max(0, (replay or 0) - replay_before)
        assert of_others(grown) == expected.get("other", {})
        before, replay_before = now, replay or 0


def test_totals_that_began_again_have_grown_from_nothing() -> None:
    before = {RUN: {"dropped:stale": 9.0, "replay_samples": 1.0}, "math": {"dropped:stale": 2.0}}
    now = {RUN: {"dropped:stale": 4.0, "replay_samples": 2.0}, "math": {"dropped:stale": 3.0}}
    assert increases(before, now) == now


def test_an_environment_that_was_forgotten_drops_nothing_again() -> None:
    before = {RUN: {"dropped:stale": 9.0}, "math": {"dropped:stale": 2.0}}
    assert of_others(increases(before, {RUN: {"dropped:stale": 9.0}})) == {}


def test_an_environment_that_moves_up_drops_nothing_again() -> None:
    """One in place of another one, when there were too many. What it dropped since then counts with the others."""
    every = {f"e{n}": {"dropped:stale": 3.0} for n in range(MOST_CHARTED_ENVIRONMENTS + 1)}
    dropped = 3.0 * len(every)
    first, *_, moved_up = every
    before = {RUN: {"dropped:stale": dropped}, **every}
    del before[moved_up]
    now = {RUN: {"dropped:stale": dropped + 2}, **every, moved_up: {"dropped:stale": 5.0}}
    del now[first]
    grown = increases(before, now)
    assert {name: found for name, found in grown.items() if found} == {RUN: {"dropped:stale": 2}}
    assert of_others(grown) == {"dropped:stale": 2}
    later = {**now, RUN: {"dropped:stale": dropped + 6}, moved_up: {"dropped:stale": 9.0}}
    assert increases(now, later)[moved_up] == {"dropped:stale": 4}
