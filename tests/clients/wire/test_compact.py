"""Columns in fewer bytes come back as they were."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lachesis.wire.batch_file import BatchFile, parts_of
from lachesis.wire.blob import stored_header, write
from lachesis.wire.columns import COMPACT, DETAILS, Ragged, in_full, lay_out, pack, unpack
from lachesis.wire.compact import MASKED, TRAINED

VALUES: dict[str, list[Any]] = {
    "masks": [MASKED, 0, 7, 2**40],
    "advantages": [0.0, -0.0, 1.5, 1e300],
    "inference_logprobs": [-1.0, 0.1],
    "policy_versions": [0, 3],
}


@st.composite
def column_sets(draw: st.DrawFn) -> dict[str, Ragged]:
    """Columns of which some fit a compact form: labels, and values that change with the sequence or with the token."""
    lengths = np.array(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)), np.int32)
    count = int(lengths.sum())
    tokens = np.array(draw(st.lists(st.sampled_from([MASKED, 0, 7, 2**40]), min_size=count, max_size=count)))
    columns = {"tokens": Ragged(tokens, (lengths,)), "scores": Ragged(np.zeros(len(lengths), np.float32))}
    for name, values in VALUES.items():
        per = draw(st.sampled_from(["sequence", "token", "label"]))
        chosen = np.array(draw(st.lists(st.sampled_from(values), min_size=count, max_size=count)))
        if per == "sequence":
            chosen = np.repeat(chosen[: len(lengths)], lengths)
        elif name == "masks" and per == "label":
            chosen = np.where(chosen == MASKED, MASKED, tokens)
        columns[name] = Ragged(chosen, (lengths,))
    return columns


def bits(values: NDArray[Any]) -> bytes:
    return values.tobytes()


def tensors_of(file: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    found = stored_header(file).tensors.items()
    return {name: (info.dtype, info.shape, file[info.start : info.end]) for name, info in found}


def in_plain(columns: dict[str, Ragged]) -> bytes:
    return write({**lay_out(columns, compact=False), DETAILS: np.frombuffer(b"{}", np.uint8)})


@given(columns=column_sets())
def test_columns_come_back_bit_for_bit(columns: dict[str, Ragged]) -> None:
    compact, plain = pack(columns, b"{}"), in_plain(columns)
    assert in_full(compact) == plain
    assert in_full(plain) == plain
    got, expected = unpack(compact).columns, unpack(plain).columns
    assert got.keys() == expected.keys()
    for name, column in expected.items():
        assert got[name].values.dtype == column.values.dtype
        assert bits(got[name].values) == bits(column.values)


@given(groups=st.lists(st.tuples(column_sets(), st.booleans()), min_size=1, max_size=4))
def test_a_batch_of_compact_and_other_groups_is_read_as_one(groups: list[tuple[dict[str, Ragged], bool]]) -> None:
    blobs = [pack(columns, b"{}") if compact else in_plain(columns) for columns, compact in groups]
    sizes = [len(columns["scores"].values) for columns, _ in groups]
    read = BatchFile(b"".join(parts_of(blobs, sizes, {})))
    in_full_file = b"".join(parts_of([in_plain(columns) for columns, _ in groups], sizes, {}))
    plain = BatchFile(in_full_file)
    for group in range(len(groups)):
        assert sorted(read.names_of(group)) == sorted(plain.names_of(group))
        for name in plain.names_of(group):
            assert read.holds(group, name)
            assert read.dtype(group, name) == plain.dtype(group, name)
            assert bits(read.of_group(group, name)) == bits(plain.of_group(group, name))
            assert not read.of_group(group, name).flags.writeable
    assert tensors_of(b"".join(parts_of(blobs, sizes, {}, compact=False))) == tensors_of(in_full_file)
    for name in plain.names_of(0):
        joined, expected = read.whole(name), plain.whole(name)
        assert joined is None or expected is not None
        assert joined is None or expected is None or bits(joined) == bits(expected)


def test_labels_and_values_per_sequence_take_few_bytes() -> None:
    lengths = np.full(8, 512, np.int32)
    tokens = np.arange(8 * 512, dtype=np.int32)
    masks = np.where(tokens % 512 < 128, MASKED, tokens).astype(np.int32)
    columns = {
        "tokens": Ragged(tokens, (lengths,)),
        "masks": Ragged(masks, (lengths,)),
        "scores": Ragged(np.arange(8, dtype=np.float32)),
        "advantages": Ragged(np.repeat(np.arange(8, dtype=np.float32), lengths), (lengths,)),
        "inference_logprobs": Ragged(np.log(tokens + 0.5, dtype=np.float32), (lengths,)),
        "policy_versions": Ragged(np.full(8 * 512, 3, np.int32), (lengths,)),
    }
    header = stored_header(pack(columns, b"{}"))
    sizes = {name: info.end - info.start for name, info in header.tensors.items()}
    assert {name: sizes[name] for name in COMPACT if name in sizes} == {
        TRAINED: 512,
        "advantages.per_sequence": 32,
        "policy_versions.per_sequence": 32,
    }
    assert "inference_logprobs" in sizes
    assert len(pack(columns, b"{}")) < 0.45 * len(in_plain(columns))


@pytest.mark.parametrize("labels", [[MASKED, 5, 6], [1, 2, 4], [0, 0, 1]])
def test_other_labels_stay_as_they_are(labels: list[int]) -> None:
    lengths = (np.array([3], np.int32),)
    columns = {"tokens": Ragged(np.array([1, 2, 3], np.int32), lengths)}
    columns |= {"masks": Ragged(np.array(labels, np.int32), lengths), "scores": Ragged(np.zeros(1, np.float32))}
    assert not COMPACT.keys() & stored_header(pack(columns, b"{}")).tensors.keys()
