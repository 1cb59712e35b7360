"""Annotations have the rows of their group, and finite values in 32 bits; errors name the place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.groups.annotations import Rows, checked_annotations
from lachesis.wire.errors import InvalidField

rows_of_values = st.lists(st.lists(st.floats(-1e39, 1e39) | st.sampled_from([np.inf, np.nan]), min_size=1), min_size=1)


def ragged(rows: list[list[float]]) -> Rows:
    return Rows(np.array([value for row in rows for value in row], float), np.array([len(row) for row in rows]))


@given(rows_of_values)
def test_the_first_value_that_is_not_finite_in_32_bits_is_named(rows: list[list[float]]) -> None:
    lengths = np.array([len(row) for row in rows])
    with np.errstate(over="ignore"):
        places = [
            (n, k) for n, row in enumerate(rows) for k, value in enumerate(row) if not np.isfinite(np.float32(value))
        ]
    if not places:
        (values,) = checked_annotations({"a": ragged(rows)}, lengths).values()
        assert values.dtype == np.float32
        assert values.tolist() == [float(np.float32(value)) for row in rows for value in row]
        return
    with pytest.raises(InvalidField) as found:
        checked_annotations({"a": ragged(rows)}, lengths)
    assert found.value.location == ("annotations", "a", *places[0])


@pytest.mark.parametrize(
    ("rows", "place", "why"),
    [
        ([[0.0, 1.0]], (), "1 rows where the group has 2 sequences"),
        ([[0.0, 1.0], [0.0, 1.0]], (1,), "2 values where the sequence has 1 tokens"),
        ([[], [0.0]], (0,), "0 values where the sequence has 2 tokens"),
    ],
)
def test_other_rows_than_those_of_the_group_are_refused(
    rows: list[list[float]], place: tuple[int, ...], why: str
) -> None:
    with pytest.raises(InvalidField, match=why) as found:
        checked_annotations({"a": ragged(rows)}, np.array([2, 1]))
    assert found.value.location == ("annotations", "a", *place)
