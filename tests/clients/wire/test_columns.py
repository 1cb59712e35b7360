"""The layout of a stored group."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from lachesis.wire.blob import DamagedBlob
from lachesis.wire.columns import COLUMNS, Ragged, narrowed, nested, pack, unpack

DETAILS = b'{"env_id":null}'


def ragged(*lengths: list[int], dtype: type = np.int64) -> Ragged:
    """A column of counted-up values with these lengths."""
    return Ragged(np.arange(sum(lengths[-1]), dtype=dtype), tuple(np.array(level, np.int64) for level in lengths))


def same(one: Ragged, other: Ragged) -> bool:
    return np.array_equal(one.values, other.values) and all(map(np.array_equal, one.lengths, other.lengths))


@st.composite
def column_sets(draw: st.DrawFn) -> dict[str, Ragged]:
    """Any columns a group may have, with lengths of their own or those of tokens."""
    usual = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    columns = {}
    for column in COLUMNS:
        if column.name != "tokens" and not draw(st.booleans()):
            continue
        count = len(usual)
        levels: list[list[int]] = []
        for depth in range(column.depth - 1):
            own = st.lists(st.integers(0, 3), min_size=count if depth else 0, max_size=count if depth else 4)
            levels.append(draw(own if depth else st.just(usual) | own))
            count = sum(levels[-1])
        values = np.arange(count, dtype=np.int64 if column.kind == "int" else np.float64)
        columns[column.name] = Ragged(values, tuple(np.array(level, np.int64) for level in levels))
    return columns


@given(columns=column_sets())
def test_columns_come_back_as_they_were_packed(columns: dict[str, Ragged]) -> None:
    got, details, *_ = unpack(pack(columns, DETAILS))
    assert details == DETAILS
    assert got.keys() == columns.keys()
    assert all(same(got[name], columns[name]) for name in columns)


@given(columns=column_sets())
def test_equal_columns_give_equal_bytes(columns: dict[str, Ragged]) -> None:
    assert pack(columns, DETAILS) == pack(dict(reversed(columns.items())), DETAILS)


def test_lengths_are_stored_only_where_they_differ() -> None:
    tokens = ragged([2, 3])
    columns = {
        "tokens": tokens,
        "masks": tokens,
        "advantages": ragged([3, 3], dtype=np.float64),
        "distill_token_ids": ragged([2, 3], [1, 1, 2, 2, 2]),
        "distill_logprobs": ragged([2, 3], [1, 1, 2, 2, 2], dtype=np.float64),
    }
    payload = pack(columns, DETAILS)
    for name, stored in (
        (b'"tokens.lengths"', True),
        (b'"masks.lengths"', False),
        (b'"advantages.lengths"', True),
        (b'"distill_token_ids.lengths"', False),
        (b'"distill_token_ids.inner_lengths"', True),
        (b'"distill_logprobs.inner_lengths"', False),
    ):
        assert (name in payload) == stored, name


@given(arrays(np.int64, st.integers(0, 5)) | arrays(np.float64, st.integers(0, 5), elements=st.floats(width=32)))
def test_narrowed_values_are_the_same_bit_for_bit(values: NDArray[Any]) -> None:
    narrow = narrowed(values)
    assert narrow.astype(values.dtype).tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("values", "item_bytes"),
    [
        ([2**31 - 1, -(2**31)], 4),
        ([2**31], 8),
        ([-(2**31) - 1], 8),
        ([0.5, -0.0, 1.401298464324817e-45, 3.4028234663852886e38], 4),
        ([0.1], 8),
        ([1e300], 8),
        ([5e-324], 8),
    ],
    ids=str,
)
def test_values_take_four_bytes_where_that_loses_nothing(values: list[float], item_bytes: int) -> None:
    assert narrowed(np.array(values)).itemsize == item_bytes


@pytest.mark.parametrize(
    ("column", "rows"),
    [
        (ragged([2, 2]), [[0, 1], [2, 3]]),
        (ragged([1, 2]), [[0], [1, 2]]),
        (ragged([0, 0]), [[], []]),
        (ragged([]), []),
        (ragged([2, 1], [2, 2, 2]), [[[0, 1], [2, 3]], [[4, 5]]]),
        (ragged([1, 1], [2, 2]), [[[0, 1]], [[2, 3]]]),
        (ragged([2, 1], [1, 0, 2]), [[[0], []], [[1, 2]]]),
        (ragged([0, 0], []), [[], []]),
    ],
    ids=str,
)
def test_nested_rows_are_cut_where_the_lengths_say(column: Ragged, rows: list[object]) -> None:
    def listed(value: object) -> object:
        if isinstance(value, np.ndarray):
            return value.tolist()
        return [listed(item) for item in value]  # type: ignore[attr-defined]

    assert listed(nested(column)) == rows


def test_a_blob_cut_short_is_refused() -> None:
    payload = pack({"tokens": ragged([2, 3])}, DETAILS)
    with pytest.raises(DamagedBlob):
        unpack(payload[:-1])
