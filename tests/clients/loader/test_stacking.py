"""Samples as one batch."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lachesis.loader import Pack, Packed, Pad, Padded, stack


def rows(lengths: list[int], dtype: Any = np.int32) -> list[dict[str, Any]]:
    return [{"tokens": np.arange(1, length + 1, dtype=dtype), "score": np.float32(length)} for length in lengths]


def test_equal_arrays_are_stacked_wherever_they_are() -> None:
    samples = [{"obs": {"image": np.full((2, 3), n, np.uint8)}, "in_state": [np.array([n]), n]} for n in range(4)]
    batch = stack(samples)
    assert batch["obs"]["image"].shape == (4, 2, 3)
    assert batch["obs"]["image"].dtype == np.uint8
    assert batch["obs"]["image"][:, 1, 2].tolist() == [0, 1, 2, 3]
    assert [array.tolist() for array in batch["in_state"]] == [[[0], [1], [2], [3]], [0, 1, 2, 3]]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_padding_and_packing_keep_every_value_and_say_where_it_is(lengths: list[int]) -> None:
    samples = rows(lengths)
    padded, packed = stack(samples, Pad(-7)), stack(samples, Pack())
    assert isinstance(padded["tokens"], Padded)
    assert isinstance(packed["tokens"], Packed)
    assert padded["score"].tolist() == packed["score"].tolist() == lengths
    values, own, mask = padded["tokens"]
    assert values.shape == mask.shape == (len(lengths), max(lengths))
    assert own.tolist() == mask.sum(axis=1).tolist() == packed["tokens"].lengths.tolist() == lengths
    assert (values[~mask] == -7).all()
    bounds = packed["tokens"].cu_seqlens
    assert bounds.dtype == np.int32
    for row, row_mask, first, end, sample in zip(values, mask, bounds, bounds[1:], samples, strict=False):
        assert row[row_mask].tolist() == packed["tokens"].values[first:end].tolist() == sample["tokens"].tolist()
    assert bounds[-1] == len(packed["tokens"].values)


def test_ragged_fields_are_known_by_name_whatever_the_lengths_in_a_batch() -> None:
    samples = [{"t": np.arange(3), "m": np.arange(3), "image": np.zeros((4, 4))} for _ in range(2)]
    batch = stack(samples, {"t": Pad(0), "m": Pack()})
    assert isinstance(batch["t"], Padded)
    assert isinstance(batch["m"], Packed)
    assert batch["image"].shape == (2, 4, 4)
    with pytest.raises(KeyError, match="no array is called 'x'; there are t, m, image"):
        stack(samples, {"x": Pad()})


def test_further_dimensions_are_kept() -> None:
    samples = [{"x": np.ones((n, 2), np.float32)} for n in (1, 3)]
    assert stack(samples, Pad(np.nan))["x"].values.shape == (2, 3, 2)
    assert stack(samples, Pack())["x"].values.shape == (4, 2)
    samples.append({"x": np.ones((1, 3), np.float32)})
    for how in (Pad(), Pack()):
        with pytest.raises(ValueError, match=r"x: 2 has shape \(1, 3\), 0 has \(1, 2\)"):
            stack(samples, how)


def test_samples_that_do_not_fit_are_named_with_the_place() -> None:
    with pytest.raises(ValueError, match=r"tokens: 'b' has shape \(4,\), 'a' has \(3,\); set `ragged` to pad or pack"):
        stack(rows([3, 4]), keys=["a", "b"])
    with pytest.raises(ValueError, match="z: only one of 'a' and 'c' has it"):
        stack([{"x": 1}, {"x": 1}, {"x": 1, "z": 2}], keys=["a", "b", "c"])
    with pytest.raises(ValueError, match=r"x: 1 has shape \(\), 0 has \(1,\)$"):
        stack([{"x": np.ones(1)}, {"x": np.ones(())}], Pad())


def test_narrow_columns_beside_wide_ones_become_wide() -> None:
    """A group's column is i32 where every value fits."""
    samples = [{"x": np.array([1], np.int32)}, {"x": np.array([2**40, 2], np.int64)}]
    assert stack(samples, Pad())["x"].values.tolist() == [[1, 0], [2**40, 2]]
    assert stack(samples, Pack())["x"].values.dtype == np.int64


@pytest.mark.parametrize("other", [np.float32, np.uint8, np.int16, np.bool_])
def test_bits_of_bf16_are_not_mixed_with_numbers(other: Any) -> None:
    with pytest.raises(ValueError, match=f"x: 1 is {np.dtype(other)}, 0 is uint16"):
        stack([{"x": np.ones(2, np.uint16)}, {"x": np.ones(2, other)}])


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [(np.uint8, -1), (np.int32, 0.5), (np.int64, np.nan), (np.bool_, 2), (np.float16, -1e9), (np.float32, 1e300)],
)
def test_a_fill_that_the_dtype_does_not_have_is_refused(dtype: Any, fill: float) -> None:
    with pytest.raises(ValueError, match=r"tokens: .* is not a value of"):
        stack(rows([1, 2], dtype), Pad(fill))


@pytest.mark.parametrize("fill", [0.1, -np.inf, np.nan, 65504])
def test_a_fill_of_floats_may_be_rounded_and_infinite(fill: float) -> None:
    (padded,) = stack([{"x": np.zeros(2, np.float16)}, {"x": np.zeros(1, np.float16)}], Pad(fill)).values()
    assert np.array_equal(padded.values[1, 1], np.float16(fill), equal_nan=True)


@pytest.mark.parametrize("how", [None, Pad(), Pack()])
def test_a_batch_shares_no_memory_with_its_samples(how: Pad | Pack | None) -> None:
    sample = {"x": np.arange(3)}
    batch = stack([sample], how)["x"]
    values = batch if how is None else batch.values
    assert values.flags.writeable
    assert not np.shares_memory(values, sample["x"])
