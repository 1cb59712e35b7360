"""Series and histograms against the values that they show."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.core.history.causes import HELD, cause_of
from app.core.history.charts import Histograms, environment_series, histograms, run_series
from app.core.history.series import MOST_CHARTED_ENVIRONMENTS, OTHERS, Facts, HistorySpan
from app.core.history.sketch import LARGEST, Sketch
from lachesis.wire.blockers import Blocker
from lachesis.wire.history import CAUSES

POINTS = 4
rewards = st.lists(st.floats(-3, 3) | st.just(1e308), min_size=1, max_size=8)
values_at = st.dictionaries(st.integers(0, POINTS - 1), st.tuples(rewards, rewards), min_size=1)


def spans_of(values: dict[int, tuple[list[float], list[float]]]) -> dict[int, HistorySpan]:
    """Spans in which groups with these rewards came in and went out, of two environments."""
    spans = {}
    for place, (came, went) in values.items():
        facts = Facts(
            {"groups_in": len(came), "groups_out": len(went), "sequences_out": len(went)},
            sketches={"reward_in": Sketch.of(came), "reward_out": Sketch.of(went)},
        )
        code = Facts({"sequences_out": 3, "dropped:stale": place})
        spans[place] = HistorySpan(Facts({"sequences_out": len(went) + 3, "batches": 1}), {"math": facts, "code": code})
    return spans


@given(values_at)
def test_what_is_not_known_is_none(values: dict[int, tuple[list[float], list[float]]]) -> None:
    spans = spans_of(values)
    run, environments = run_series(spans, POINTS), environment_series(spans, POINTS)
    assert list(environments) == ["code", "math"]
    assert run["batches"] == [1 if place in values else None for place in range(POINTS)]
    assert run["step"] == [None] * POINTS
    math, code = environments["math"], environments["code"]
    assert code["dropped"] == {"stale": [place if place in values else None for place in range(POINTS)]}
    assert code["groups_in"] == [0 if place in values else None for place in range(POINTS)]
    assert code["reward_in"]["mean"] == [None] * POINTS
    for place in range(POINTS):
        if place not in values:
            assert all(series[place] is None for series in (math["groups_in"], *math["reward_in"].values()))
            continue
        came, went = values[place]
        assert (math["groups_in"][place], math["groups_out"][place]) == (len(came), len(went))
        counted = sorted(min(value, LARGEST) for value in came)
        assert counted[0] - 0.1 <= math["reward_in"]["p10"][place] <= math["reward_in"]["p90"][place]
        assert math["share_got"][place] + code["share_got"][place] == 1 or len(went) % 3


@given(values_at)
def test_histograms_have_each_group_once(values: dict[int, tuple[list[float], list[float]]]) -> None:
    found = histograms(spans_of(values), POINTS, "reward")
    assert found.edges == sorted(found.edges)
    assert len(found.edges) in (2, 33)
    for place in range(POINTS):
        came, went = values.get(place, ([], []))
        assert (sum(found.generated[place]), sum(found.trained[place])) == (len(came), len(went))
        assert len(found.generated[place]) == len(found.edges) - 1


def test_binary_rewards_are_in_the_first_and_the_last_bin() -> None:
    found = histograms(spans_of({1: ([0.0] * 30 + [1.0] * 70, [1.0])}), POINTS, "reward")
    assert (found.edges[0], found.edges[-1]) == (0, 1)
    assert Counter(found.generated[1]) == {30: 1, 70: 1, 0: 30}
    assert (found.generated[1][0], found.generated[1][-1], found.trained[1][-1]) == (30, 70, 1)


def test_rewards_that_vary_smoothly_have_smooth_histograms() -> None:
    """Bins of sketches are wide here, and differ between what came in and what went out."""
    rng = np.random.default_rng(1)
    came, went = rng.normal(size=100_000), rng.normal(size=2000)
    found = histograms(spans_of({0: (came.tolist(), went.tolist())}), POINTS, "reward")
    inner = np.array([-np.inf, *found.edges[1:-1], np.inf])
    for rewards, shown in ((came, found.generated_total), (went, found.trained_total)):
        exact, _ = np.histogram(rewards, inner)
        assert np.all(np.abs(np.array(shown) - exact) <= 0.4 * exact + 5)


def test_one_absurd_reward_does_not_hide_the_others() -> None:
    found = histograms(spans_of({0: ([n / 1000 for n in range(1000)] + [1e308], [0.5])}), POINTS, "reward")
    assert found.edges[-1] < 1.1


@given(
    st.lists(st.integers(-3, 3), min_size=5, max_size=200).filter(lambda usual: len(set(usual)) > 1),
    st.sampled_from([[1e308], [-1e308], [1e308, -1e308]]),
)
def test_outliers_are_in_the_outermost_bins(usual: list[int], absurd: list[float]) -> None:
    """Also if there are few groups, and the outliers come in and go out."""
    found = histograms(spans_of({0: ([*map(float, usual), *absurd], absurd)}), POINTS, "reward")
    assert min(usual) - 0.1 <= found.edges[0] < found.edges[-1] <= max(usual) + 0.1
    (came, went) = found.generated[0], found.trained[0]
    assert (sum(came), sum(went)) == (len(usual) + len(absurd), len(absurd))
    assert (went[0], went[-1]) == (int(-1e308 in absurd), int(1e308 in absurd))
    assert sum(count > 0 for count in came) > 1, "the others are in bins of their own"


@given(
    st.lists(
        st.floats(-1e18, 1e18) | st.floats(1e6, 1e6 + 1) | st.floats(-1e-300, 1e-300) | st.integers(-3, 3).map(float),
        min_size=1,
        max_size=30,
    )
)
def test_bins_follow_each_other(came: list[float]) -> None:
    found = histograms(spans_of({0: (came, came)}), POINTS, "reward")
    assert all(low < high for low, high in pairwise(found.edges))
    assert found.generated[0] == found.trained[0]


def test_values_of_which_almost_all_are_equal_keep_the_others() -> None:
    for absurd in ([], [-1e308], [1e308]):
        found = histograms(spans_of({0: ([0.0] * 1000 + [1.0] + absurd, [0.0])}), POINTS, "reward")
        assert (found.edges[0], found.edges[-1]) == (0, 1)
        assert sorted(found.generated[0])[-2:] == [1 + (1e308 in absurd), 1000 + (-1e308 in absurd)]


def test_five_hundred_environments_have_as_many_series_as_is_promised() -> None:
    spans = {
        place: HistorySpan(
            environments={f"e{n:03}": Facts({"sequences_in": n}) for n in range(100 * place, 100 * place + 201)}
        )
        for place in range(POINTS)
    }
    found = environment_series(spans, POINTS)
    assert len(found) == MOST_CHARTED_ENVIRONMENTS + 1
    assert OTHERS in found
    assert "e500" in found
    assert "e000" not in found
    for place, span in spans.items():
        came = sum(facts.counts.get("sequences_in", 0) for facts in span.environments.values())
        assert sum(series["sequences_in"][place] or 0 for series in found.values()) == came


def test_there_are_no_histograms_of_nothing() -> None:
    assert histograms({}, POINTS, "length") == Histograms()
    assert histograms(spans_of({0: ([1.0], [1.0])}), POINTS, "staleness") == Histograms()


def test_each_blocker_is_a_cause_or_no_concern_of_a_trainer() -> None:
    """A new reason gets its cause in `app/core/history/causes.py`."""
    causes = {blocker: cause_of(blocker, starving=False) for blocker in Blocker}
    assert {blocker for blocker, cause in causes.items() if cause is None} == {Blocker.NOT_REGISTERED, Blocker.ARCHIVED}
    assert cause_of(None, starving=True) is None
    assert cause_of(Blocker.TOO_FEW_SEQUENCES, starving=True) == "starvation"
    assert cause_of(Blocker.SERVING_PAUSED, starving=True) == "paused"
    assert set(causes.values()) | {None, HELD, "starvation"} == {None, *CAUSES}
