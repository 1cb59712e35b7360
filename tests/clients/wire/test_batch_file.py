"""Batches in one file: nothing of any group is lost, and columns lie end to end where they can."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from safetensors.numpy import load

from lachesis.wire import blob
from lachesis.wire.batch_file import GROUP_LENGTHS, GROUP_ROWS, LABELS, BatchFile, parts_of
from lachesis.wire.blob import ITEM_BYTES, DamagedBlob
from tests.api.native_groups import blobs_of
from tests.properties import examples

Tensors = dict[str, NDArray[Any]]

plain = ("tokens", "tokens.lengths", "x", "/", "a/b", "a/0/b", "٣/x")
taken = ("0/x", "7/x", "07/x", "98765432109/x", "1/", "0/labels", GROUP_LENGTHS, GROUP_ROWS, LABELS)  # by the layout
names = st.sampled_from(plain + taken)
shapes = st.sampled_from([(), (0,), (1,), (3,), (0, 2), (2, 2), (2, 3), (2, 0), (2**59, 0)])
dtypes = st.sampled_from(["?", "u1", "<i2", "<f2", "<i4", "<f4", "<i8", "<f8"])
tensors = dtypes.flatmap(lambda dtype: arrays.arrays(dtype, shapes, fill=st.nothing()))
groups = st.tuples(
    st.dictionaries(names, tensors, max_size=6), st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
)


def file_of(payloads: list[bytes]) -> bytearray:
    return bytearray().join(parts_of(payloads, range(len(payloads)), {"batch": "{}"}))


@given(st.lists(groups, max_size=4))
@examples(500)
def test_every_group_comes_out_as_it_went_in(several: list[tuple[Tensors, dict[str, str]]]) -> None:
    payloads = [blob.write(*group) for group in several]
    assert blobs_of(file_of(payloads)) == ({"lachesis": "batch", "batch": "{}"}, payloads)


@given(st.lists(groups, min_size=1, max_size=4))
@examples(300)
def test_any_reader_has_what_the_groups_have_in_common_end_to_end(
    several: list[tuple[Tensors, dict[str, str]]],
) -> None:
    payloads = [blob.write(*group) for group in several]
    body = file_of(payloads)
    read, file = load(bytes(body)), BatchFile(body)
    assert read[GROUP_LENGTHS].tolist() == list(range(len(several)))
    for name in several[0][0]:
        found = [group[name] for group, _ in several if name in group]
        whole = file.whole(name)
        if len(found) == len(several) and can_be_joined(name, found):
            together = np.concatenate(found)
            assert whole is not None
            assert read[name].tobytes() == whole.tobytes() == together.tobytes()
            assert read[name].shape == whole.shape == together.shape
        else:
            assert whole is None


def can_be_joined(name: str, found: list[NDArray[Any]]) -> bool:
    first = found[0]
    if name in taken or not all(array.ndim for array in found):
        return False
    alike = all(array.dtype == first.dtype and array.shape[1:] == first.shape[1:] for array in found)
    return alike and sum(len(array) for array in found) * first.itemsize < 2**63  # what numpy can count


@given(st.lists(groups, min_size=1, max_size=4))
@examples(300)
def test_all_values_are_aligned(several: list[tuple[Tensors, dict[str, str]]]) -> None:
    header = blob.read_header(file_of([blob.write(*group) for group in several]))
    assert not [name for name, info in header.tensors.items() if info.start % ITEM_BYTES[info.dtype]]


def test_columns_are_not_copied_on_either_side() -> None:
    payloads = [blob.write({"x": np.arange(n, dtype=np.int64)}) for n in (2, 3)]
    parts = parts_of(payloads, [1, 1], {})
    of_payloads = [part for part in parts if isinstance(part, memoryview) and part.obj in payloads]
    assert b"".join(of_payloads) == np.int64([0, 1, 0, 1, 2]).tobytes()
    body = bytearray().join(parts)
    file = BatchFile(body)
    whole, second = file.whole("x"), file.of_group(1, "x")
    assert whole is not None
    whole[2] = 7
    assert second.tolist() == [7, 1, 2]
    assert not second.flags.writeable
    assert np.shares_memory(whole, np.frombuffer(body, np.uint8))


def rows_of(rows: NDArray[Any], name: str = "x") -> bytes:
    """A file that says it has ``rows`` of a tensor of three values."""
    return blob.write({name: np.arange(3), GROUP_ROWS: rows}, {"lachesis": "batch"})


def test_such_a_file_by_hand_is_read() -> None:
    file = BatchFile(rows_of(np.int64([[1, 2]])))
    assert [file.of_group(n, "x").tolist() for n in range(2)] == [[0], [1, 2]]
    assert list(file.labels) == [{}, {}]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(rows_of(np.int64([[1, 1]])), id="too few rows"),
        pytest.param(rows_of(np.int64([[4, -1]])), id="rows below nothing"),
        pytest.param(rows_of(np.int64([[1, 2], [1, 2]])), id="rows of nothing"),
        pytest.param(rows_of(np.int64([1, 2])), id="no table"),
        pytest.param(rows_of(np.int64(3)), id="one number"),
        pytest.param(rows_of(np.float64([[1, 2]])), id="no whole numbers"),
        pytest.param(rows_of(np.zeros((0, 2), np.int64), "2/x"), id="a group too many"),
        pytest.param(blob.write({"x": np.arange(3)}, {"lachesis": "batch"}), id="no rows"),
        pytest.param(
            blob.write({GROUP_ROWS: np.zeros((0, 0), np.int64)}, {"lachesis": "groups"}), id="a frame of groups"
        ),
        pytest.param(blob.write({GROUP_ROWS: np.zeros((0, 0), np.int64)}), id="any file"),
        pytest.param(bytes(rows_of(np.int64([[1, 2]])))[:-1], id="cut off"),
    ],
)
def test_a_file_that_is_not_such_a_one_is_damaged(body: bytes) -> None:
    with pytest.raises(DamagedBlob):
        BatchFile(body)
