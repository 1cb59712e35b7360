"""Some sequences of a group, cut out of its blob."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lachesis.wire import blob
from lachesis.wire.columns import nested, unpack
from lachesis.wire.sequences import lengths_of, take_sequences
from tests.api.native_groups import in_binary, native_groups


def rows_of(payload: bytes) -> dict[str, Any]:
    """Each column as nested lists."""
    return {name: _listed(nested(column)) for name, column in unpack(payload).columns.items()}


def _listed(rows: Any) -> Any:
    return rows.tolist() if isinstance(rows, np.ndarray) else [_listed(row) for row in rows]


@given(data=st.data(), group=native_groups(), spelled_out=st.booleans())
def test_each_column_holds_the_rows_that_were_taken(
    data: st.DataObject, group: dict[str, Any], spelled_out: bool
) -> None:
    payload = in_binary(group, spelled_out=spelled_out)
    count = len(group["tokens"])
    positions = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    before, after = rows_of(payload), rows_of(take_sequences(payload, positions))
    assert after.keys() == before.keys()
    for name, rows in before.items():
        assert after[name] == ([rows[position] for position in positions] if len(rows) == count else rows)


@given(group=native_groups())
def test_all_sequences_are_the_group_itself(group: dict[str, Any]) -> None:
    payload = in_binary(group)
    whole = take_sequences(payload, range(len(group["tokens"])))
    assert rows_of(whole) == rows_of(payload)
    assert unpack(whole).metadata == unpack(payload).metadata
    assert json.loads(unpack(whole).details) == json.loads(unpack(payload).details)
    for name, array in unpack(payload).tensors.items():
        assert np.array_equal(unpack(whole).tensors[name], array, equal_nan=array.dtype.kind == "f")


def sample(**more: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    tokens = np.arange(6, dtype=np.int32)
    lengths = np.array([1, 2, 3], np.int32)
    return {"tokens": tokens, "tokens.lengths": lengths, "masks": tokens, "scores": np.zeros(3, np.float32), **more}


def test_tensors_of_the_sender_are_cut_where_they_have_rows_of_the_sequences() -> None:
    """A value per token, a row per sequence, rows of lengths of their own; the rest is not of sequences."""
    payload = blob.write(
        sample(
            per_token=np.arange(12, dtype=np.uint8).reshape(6, 2),
            per_sequence=np.array([10.0, 20.0, 30.0]),
            **{"frames": np.arange(4, dtype=np.int16), "frames.lengths": np.array([3, 0, 1])},
            of_the_group=np.arange(5),
            number=np.float32(7),
        )
    )
    got = unpack(take_sequences(payload, [0, 2])).tensors
    assert got["per_token"].tolist() == [[0, 1], [6, 7], [8, 9], [10, 11]]
    assert got["per_sequence"].tolist() == [10.0, 30.0]
    assert got["frames"].tolist() == [0, 1, 2, 3]
    assert got["frames.lengths"].tolist() == [3, 1]
    assert got["of_the_group"].tolist() == [0, 1, 2, 3, 4]
    assert got["number"] == 7


WRAPPED = {
    "a negative length": np.array([-1, 3, 2]),
    "a negative length of 64 bits": np.array([2**64 - 1, 3, 2], np.uint64),
    "lengths that add up to 4 + 2**64": np.array([2**63, 2**63 + 2, 2], np.uint64),
    "lengths of signed integers that do": np.array([2**63 - 1, 2**63 - 1, 6]),
}


@pytest.mark.parametrize("lengths", WRAPPED.values(), ids=list(WRAPPED))
@pytest.mark.parametrize("positions", [[0], [1, 2]])
def test_lengths_of_a_sender_that_only_seem_to_fit_cut_nothing(lengths: Any, positions: list[int]) -> None:
    payload = blob.write(sample(x=np.arange(4), **{"x.lengths": lengths}))
    got = unpack(take_sequences(payload, positions)).tensors
    assert got["x"].tolist() == [0, 1, 2, 3]
    assert got["x.lengths"].tolist() == lengths[positions].tolist()


def test_rows_without_values_are_cut_however_many_there_are() -> None:
    lengths = np.array([2**60, 2**61, 1])
    payload = blob.write(sample(x=np.empty((2**60 + 2**61 + 1, 0), np.uint8), **{"x.lengths": lengths}))
    assert unpack(take_sequences(payload, [1, 2])).tensors["x"].shape == (2**61 + 1, 0)


def test_bits_that_numpy_cannot_name_keep_their_dtype() -> None:
    header = blob.header_of([("x", "BF16", (3,), 6)])
    bits = blob.tensor(header + b"abcdef", blob.read_header(header + b"abcdef").tensors["x"])
    payload = blob.write(sample(x=bits), dtypes={"x": "BF16"})
    cut = take_sequences(payload, [1])
    assert blob.read_header(cut).tensors["x"].dtype == "BF16"
    assert unpack(cut).tensors["x"].tobytes() == b"cd"


def test_lists_among_the_details_are_cut_where_they_have_an_entry_for_each() -> None:
    details = {"messages": [["a"], ["b"], ["c"]], "overrides": [{"x": 1}], "generation_params": {"t": 1.0}}
    text = np.frombuffer(json.dumps(details).encode(), np.uint8)
    got = json.loads(unpack(take_sequences(blob.write(sample(details=text)), [2])).details)
    assert got == {"messages": [["c"]], "overrides": [{"x": 1}], "generation_params": {"t": 1.0}}


@pytest.mark.parametrize("positions", [[0], [1, 2], [0, 1, 2]])
def test_lengths_are_read_without_the_columns(positions: list[int]) -> None:
    cut = take_sequences(blob.write(sample()), positions)
    assert lengths_of(cut, blob.read_header(cut)).tolist() == [[1, 2, 3][position] for position in positions]
