"""Nested arrays and their flat names."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load

from lachesis.loader import decode, encode
from lachesis.loader.nested import flatten, nest
from lachesis.wire.blob import DamagedBlob, read_header

names = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1).filter(
    lambda name: not name.isdigit()
)
trees = st.recursive(
    st.integers(0, 99).map(np.array),
    lambda below: st.lists(below, min_size=1, max_size=3) | st.dictionaries(names, below, min_size=1, max_size=3),
    max_leaves=8,
).filter(lambda tree: not isinstance(tree, np.ndarray))


def as_lists(nested: Any) -> Any:
    if isinstance(nested, dict):
        return {name: as_lists(value) for name, value in nested.items()}
    return [as_lists(value) for value in nested] if isinstance(nested, list) else nested.tolist()


@given(trees.filter(lambda tree: "__metadata__" not in tree))
def test_what_is_written_comes_back_nested_as_it_was(tree: Any) -> None:
    assert as_lists(decode(encode(tree))) == as_lists(tree)


def test_the_names_in_a_file_are_those_of_the_safetensors_library() -> None:
    a, b = np.arange(6, dtype=np.uint8).reshape(2, 3), np.ones(2, np.float32)
    written = load(encode({"obs": {"image": a}, "in_state": [b, 2 * b], "reward": 0.5, "n": (1, True)}))
    assert {name: array.tolist() for name, array in written.items()} == {
        "obs/image": a.tolist(),
        "in_state/0": [1, 1],
        "in_state/1": [2, 2],
        "reward": 0.5,
        "n/0": 1,
        "n/1": True,
    }


def test_arrays_are_views_of_the_bytes() -> None:
    payload = encode({"x": np.arange(4)})
    assert np.shares_memory(decode(payload)["x"], np.frombuffer(payload, np.uint8))


def test_arrays_of_ml_dtypes_are_written_as_what_they_are() -> None:
    numbers = np.array([[1.5, -2.0], [0.0, 3.0]], ml_dtypes.bfloat16).T
    payload = encode({"x": numbers, "y": [numbers[0, 1], numbers.astype(ml_dtypes.float8_e5m2)]})
    dtypes = {name: info.dtype for name, info in read_header(payload).tensors.items()}
    assert dtypes == {"x": "BF16", "y/0": "BF16", "y/1": "F8_E5M2"}
    assert decode(payload)["x"].view(ml_dtypes.bfloat16).tolist() == numbers.tolist()


def test_a_slash_in_a_name_separates_levels() -> None:
    """As the names of a safetensors file do, which a reader may hand on."""
    assert as_lists(decode(encode({"a/b": 1, "a": {"c": 2}, "d/0": 3}))) == {"a": {"b": 1, "c": 2}, "d": [3]}


def test_a_list_of_more_than_ten_keeps_its_order() -> None:
    assert as_lists(decode(encode({"steps": list(range(12))}))) == {"steps": list(range(12))}


def test_an_array_by_itself_has_an_empty_name() -> None:
    assert list(flatten(np.arange(2))) == [""]
    assert nest(flatten(np.arange(2))).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("nested", "error", "message"),
    [
        ({"obs": {"text": "left"}}, TypeError, "obs/text: str"),
        ({"obs": [None]}, TypeError, "obs/0: NoneType"),
        ({"obs": {1: 2.0}}, TypeError, "obs: a key is 1"),
        ({"obs": {}}, ValueError, "obs: holds nothing"),
        ([], ValueError, "the sample: holds nothing"),
        ({"a/b": 1, "a": {"b": 2}}, ValueError, "a/b: two arrays"),
    ],
)
def test_what_no_file_could_hold_is_refused_with_its_place(nested: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        flatten(nested)


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b"), ("a", "a/b/c")])
def test_a_name_cannot_be_an_array_and_a_level(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="the name of an array, and of others"):
        nest({name: np.arange(1) for name in names})


def test_a_damaged_payload_is_said_to_be_one() -> None:
    with pytest.raises(DamagedBlob):
        decode(encode({"x": np.arange(4)})[:-1])
