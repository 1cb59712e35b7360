"""What people write as a cost, and what it makes of lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.datasets.costs import parse_episode_cost
from lachesis.wire.errors import InvalidField

FACTORS = st.floats(0, 1e6, allow_subnormal=False)


@pytest.mark.parametrize(
    ("text", "costs"),
    [
        ("tokens", [2.0, 10.0]),
        ("linear=3", [6.0, 30.0]),
        ("quadratic=2", [8.0, 200.0]),
        ("linear=3,quadratic=2", [14.0, 230.0]),
        ("quadratic=2, linear=3", [14.0, 230.0]),
        ("linear=2.5e1", [50.0, 250.0]),
        ("3*L + 2*L^2", [14.0, 230.0]),
        ("declared", [0.5, 0.25]),
        ("frames*action_dim*cameras", [42.0, 210.0]),
        ("frames * action_dim * cameras", [42.0, 210.0]),
        ("column:price", [0.5, 0.25]),
        ("column:a b", [0.5, 0.25]),
    ],
)
def test_a_cost_is_what_it_says(text: str, costs: list[float]) -> None:
    found = parse_episode_cost(text).of(np.array([2, 10]), declared=np.array([0.5, 0.25]), action_dim=7, cameras=3)
    assert found.tolist() == costs


def test_a_column_is_named_as_it_is() -> None:
    assert parse_episode_cost("column:a b,c").column == "a b,c"
    assert parse_episode_cost("declared").column == "cost"
    assert parse_episode_cost("tokens").column is None


@given(linear=FACTORS, quadratic=FACTORS, length=st.integers(0, 2**36))
def test_any_factors_are_read_back(linear: float, quadratic: float, length: int) -> None:
    text = f"linear={linear!r},quadratic={quadratic!r}"
    if not (linear or quadratic):
        with pytest.raises(InvalidField):
            parse_episode_cost(text)
        return
    assert parse_episode_cost(text).of([length]).tolist() == pytest.approx([linear * length + quadratic * length**2])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "token",
        "column:",
        "linear",
        "linear=",
        "linear=x",
        "linear=-1",
        "linear=inf",
        "linear=nan",
        "linear=1,linear=2",
        "linear=1,quadratic=2,linear=3",
        "linear=1;quadratic=2",
        "cubic=1",
        "frames*cameras",
        "quadratic=0",
    ],
)
def test_what_is_no_cost_is_refused(text: str) -> None:
    with pytest.raises(InvalidField) as raised:
        parse_episode_cost(text)
    assert raised.value.location == ("cost",)


@pytest.mark.parametrize(("action_dim", "cameras"), [(None, 2), (7, None), (0, 2)])
def test_what_the_dataset_does_not_say_is_not_made_up(action_dim: int | None, cameras: int | None) -> None:
    with pytest.raises(InvalidField, match=r"needs .*(action_dims|cameras)|action dimension"):
        parse_episode_cost("frames*action_dim*cameras").of([2], action_dim=action_dim, cameras=cameras)


def test_a_robot_without_cameras_still_sees_its_states() -> None:
    assert parse_episode_cost("frames*action_dim*cameras").of([2], action_dim=7, cameras=0).tolist() == [14]


def test_a_column_that_is_not_there_is_not_made_up() -> None:
    with pytest.raises(InvalidField, match="no column 'price'"):
        parse_episode_cost("column:price").of([2])
