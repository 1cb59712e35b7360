"""Costs against plain arithmetic, and what cannot be a cost."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.numeric.short_sums import total
from app.core.ranks.costs import CostModel, Measure, Weight, weigh
from lachesis.wire.errors import InvalidField

FACTORS = st.floats(0, 1e12, allow_subnormal=False)
MODELS = st.sampled_from([CostModel(m) for m in Measure if m is not Measure.LENGTH]) | st.builds(
    CostModel, st.just(Measure.LENGTH), FACTORS.filter(bool), FACTORS
)
LENGTHS = st.lists(st.integers(0, 2**40), max_size=20)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("count", [0, 1, 64, 65, 1000])
def test_a_group_of_any_size_weighs_its_tokens_and_their_squares(count: int, dtype: type[np.integer]) -> None:
    """Sums exceed 32 bits, also in small groups, for which Python computes them."""
    tokens = [2**28 // max(1, count) - each for each in range(count)]
    lengths = np.array(tokens, dtype)
    assert weigh(lengths, 0.5) == Weight(total(lengths), sum(length**2 for length in tokens), 0.5)
    assert total(lengths) == sum(tokens)


@given(MODELS)
def test_a_model_is_read_as_it_was_written(model: CostModel) -> None:
    assert CostModel.parse(str(model)) == model


def test_a_model_is_written_the_short_way() -> None:
    assert str(CostModel(Measure.LENGTH, 24576, 1)) == "24576*L + L^2"
    assert str(CostModel(Measure.LENGTH, 0.5)) == "0.5*L"
    assert str(CostModel(Measure.LENGTH, 0, 2)) == "2*L^2"


@given(FACTORS.filter(bool), FACTORS, LENGTHS)
def test_costs_by_length_are_those_of_exact_arithmetic(linear: float, quadratic: float, lengths: list[int]) -> None:
    costs = CostModel(Measure.LENGTH, linear, quadratic).costs(lengths)
    exact = [Fraction(linear) * length + Fraction(quadratic) * length**2 for length in lengths]
    assert costs.tolist() == pytest.approx([float(value) for value in exact], rel=1e-12)


@given(LENGTHS)
def test_by_default_a_token_costs_one(lengths: list[int]) -> None:
    assert CostModel().costs(lengths).tolist() == lengths


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 100), st.integers(1, 8)), min_size=1))
def test_an_episode_costs_its_frames_times_numbers_times_cameras(episodes: list[tuple[int, int, int]]) -> None:
    frames, action_dims, cameras = (list(column) for column in zip(*episodes, strict=True))
    costs = CostModel(Measure.EPISODE).costs(frames, action_dims=action_dims, cameras=cameras)
    assert costs.tolist() == [f * a * c for f, a, c in episodes]
    same_for_all = CostModel(Measure.EPISODE).costs(frames, action_dims=7, cameras=2)
    assert same_for_all.tolist() == [f * 14 for f in frames]


def test_a_producer_may_say_what_its_sequences_cost() -> None:
    assert CostModel(Measure.DECLARED).costs([5, 6], declared=[0.5, 0.25]).tolist() == [0.5, 0.25]


@pytest.mark.parametrize("model", [CostModel(), CostModel(Measure.LENGTH, 24576, 1), CostModel(Measure.LENGTH, 0, 2)])
@given(st.lists(st.lists(st.integers(0, 2**20), min_size=1, max_size=9), max_size=5))
def test_a_group_costs_what_its_sequences_cost(model: CostModel, groups: list[list[int]]) -> None:
    lengths = [np.array(group) for group in groups]
    costs = model.of_groups([weigh(group, 7.0) for group in lengths])
    assert costs.tolist() == pytest.approx([model.costs(group).sum() for group in lengths])


def test_groups_without_a_declared_cost_have_the_mean_of_the_others() -> None:
    model = CostModel(Measure.DECLARED)
    assert model.of_groups([Weight(5, 25, 1.0), Weight(9, 81), Weight(5, 25, 4.0)]).tolist() == [1.0, 2.5, 4.0]
    assert model.of_groups([]).tolist() == []
    with pytest.raises(InvalidField, match="no group declares a cost"):
        model.of_groups([Weight(5, 25)])


def test_the_first_group_whose_cost_no_number_can_hold_is_named() -> None:
    with pytest.raises(InvalidField, match="the cost of job 1 is inf: it must be finite") as refused:
        CostModel(Measure.LENGTH, 1e300, 1e300).of_groups([weigh(np.array([1])), weigh(np.array([2**28]))])
    assert refused.value.location == (1,)


@pytest.mark.parametrize(
    ("text", "linear", "quadratic"),
    [
        ("L", 1, 0),
        ("L^2", 0, 1),
        ("24576*L + L^2", 24576, 1),
        ("24576 * L + 1 * L**2", 24576, 1),
        ("L^2+24576*L", 24576, 1),
        ("1e+3*L + .5*l^2", 1000, 0.5),
        ("1E+3*L", 1000, 0),
        ("L + L", 2, 0),
    ],
)
def test_a_sum_is_read_in_any_order_and_spelling(text: str, linear: float, quadratic: float) -> None:
    assert CostModel.parse(text) == CostModel(Measure.LENGTH, linear, quadratic)


@pytest.mark.parametrize(
    "text", ["", "length", "L^3", "-1*L", "L -", "L + 5", "nan*L", "1e999*L", "0*L", "tokens + L", "__import__('os')"]
)
def test_what_is_no_cost_is_refused(text: str) -> None:
    with pytest.raises(InvalidField):
        CostModel.parse(text)


def test_the_longest_lengths_do_not_overflow() -> None:
    longest = 2**63 - 1
    assert CostModel(Measure.LENGTH, 24576, 1).costs([longest])[0] == pytest.approx(float(longest) ** 2)
    assert CostModel().costs(np.array([2**64 - 1], np.uint64))[0] == 2.0**64
    costs = CostModel(Measure.EPISODE).costs([longest], action_dims=longest, cameras=longest)
    assert costs[0] == pytest.approx(float(longest) ** 3)


def test_no_lots_cost_nothing() -> None:
    assert CostModel().costs([]).tolist() == []


@pytest.mark.parametrize(
    ("model", "given_values", "named"),
    [
        (CostModel(), {"lengths": [1, -1]}, "the length of job 1 is -1"),
        (CostModel(), {"lengths": [1.0, 2.5]}, "float64"),
        (CostModel(), {"lengths": [[1]]}, "[1, 1]"),
        (CostModel(), {"lengths": [2**64]}, "64 bits"),
        (CostModel(Measure.LENGTH, 1e300, 1e300), {"lengths": [1, 2**40]}, "the cost of job 1 is inf"),
        (CostModel(Measure.DECLARED), {"lengths": [1]}, "needs declared"),
        (CostModel(Measure.DECLARED), {"lengths": [1, 1], "declared": [1.0]}, "2 lengths"),
        (CostModel(Measure.DECLARED), {"lengths": [1, 1], "declared": [1.0, float("nan")]}, "job 1 is nan"),
        (CostModel(Measure.DECLARED), {"lengths": [1], "declared": [-0.5]}, "job 0 is -0.5"),
        (CostModel(Measure.EPISODE), {"lengths": [1]}, "needs action_dims and cameras"),
        (CostModel(Measure.EPISODE), {"lengths": [1], "action_dims": 7}, "needs cameras"),
        (CostModel(Measure.EPISODE), {"lengths": [1], "action_dims": 7, "cameras": 0}, "number of cameras of job 0"),
        (CostModel(Measure.EPISODE), {"lengths": [1, 2], "action_dims": [7], "cameras": 1}, "one for each"),
    ],
)
def test_what_has_no_cost_is_named(model: CostModel, given_values: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidField) as refused:
        model.costs(**given_values)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    "attributes",
    [(Measure.LENGTH, 0, 0), (Measure.LENGTH, -1, 1), (Measure.LENGTH, float("inf"), 1), (Measure.TOKENS, 1, 0)],
)
def test_factors_that_make_no_cost_are_refused(attributes: tuple[Measure, float, float]) -> None:
    with pytest.raises(InvalidField):
        CostModel(*attributes)
